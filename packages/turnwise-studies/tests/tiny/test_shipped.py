"""The model `tiny` that comes with turnwise is what this build makes."""

import json

import pytest

from turnwise.config import ModelConfig
from turnwise.environments.search.corpus import standard_library
from turnwise.models.load import load_model
from turnwise.models.places import tiny_folder
from turnwise.seeds import derive
from turnwise_studies.tiny.build import SHIPPED, Sizes, accuracy
from turnwise_studies.tiny.cards import Library
from turnwise_studies.tiny.pretraining_tasks import PretrainingTaskMaker


@pytest.mark.long
def test_the_shipped_weights_have_the_figures_that_stand_beside_them() -> None:
    """On a quarter of the pretraining tasks of the build's own check."""
    model, tokenizer = load_model(ModelConfig(device="cpu"))
    figures = json.loads((tiny_folder() / "figures.json").read_text())
    assert figures["stages"] == list(SHIPPED)
    seed, modules = figures["seed"], Sizes().modules
    library = Library(standard_library(), tokenizer, derive(seed, "another"), modules)
    maker = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", "final"))
    measured = accuracy(model, [library.example(maker) for _ in range(16)])
    assert abs(measured - figures["words"]["accuracy"]) < 0.1
