"""The build of the base checkpoint, at a size of seconds, and what its stages are fed with."""

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from turnwise.config import ModelConfig
from turnwise.environments.search.corpus import standard_library
from turnwise.errors import ConfigError, DataError
from turnwise.models.load import load_model
from turnwise.models.places import tiny_folder
from turnwise.monitor.display import SilentDisplay
from turnwise.seeds import derive
from turnwise_studies.tiny.architecture import VOCABULARY, Shape, tiny_config
from turnwise_studies.tiny.build import STAGES, Sizes, accuracy, build, train_tokenizer
from turnwise_studies.tiny.cards import Library
from turnwise_studies.tiny.pretraining import PretrainingTaskMaker


@pytest.mark.slow
def test_stages_that_are_left_out_are_not_learned(tmp_path: Path) -> None:
    sizes = Sizes(reading=1, cards=2, tags=1, words=1, libraries=1, modules=20, checked=1)
    documents = standard_library()[:2000]
    build(tmp_path / "whole", documents, 0, SilentDisplay(), sizes=sizes)
    build(tmp_path / "part", documents, 0, SilentDisplay(), ("read",), sizes)
    whole, part = (
        json.loads((tmp_path / name / "figures.json").read_text()) for name in ("whole", "part")
    )
    assert whole["stages"] == list(STAGES)
    assert set(whole) - set(part) == {"cards", "tags", "words"}
    assert whole["cards"]["steps"] == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "layers", "millions"), [(192, 4, 2.2), (256, 6, 5.2), (384, 8, 15)]
)
def test_a_shape_has_so_many_parameters(width: int, layers: int, millions: float) -> None:
    tokenizer = train_tokenizer(standard_library()[:300], VOCABULARY)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(tiny_config(tokenizer, Shape(width, layers)))
    count = sum(weight.numel() for weight in model.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=0.03)


@pytest.mark.parametrize(("width", "layers"), [(200, 4), (0, 4), (192, 0)])
def test_a_shape_that_makes_no_model_is_refused(width: int, layers: int) -> None:
    with pytest.raises(ConfigError, match="multiple of 32"):
        Shape(width, layers)


def test_a_stage_that_there_is_not_and_a_folder_with_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stage"):
        build(tmp_path / "new", [], 0, SilentDisplay(), ("reed",))
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="not empty"):
        build(tmp_path, [], 0, SilentDisplay())


@pytest.mark.long
def test_the_shipped_weights_have_the_figures_that_stand_beside_them() -> None:
    """On a quarter of the pretraining tasks of the build's own check."""
    model, tokenizer = load_model(ModelConfig(device="cpu"))
    figures = json.loads((tiny_folder() / "figures.json").read_text())
    assert figures["stages"] == list(STAGES)
    seed, modules = figures["seed"], Sizes().modules
    library = Library(standard_library(), tokenizer, derive(seed, "another"), modules)
    maker = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", "final"))
    measured = accuracy(model, [library.example(maker) for _ in range(16)])
    assert abs(measured - figures["words"]["accuracy"]) < 0.1
