"""Weights that stay in files: other ones are other files, and a pass leaves none behind."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.fakes import save_small_model
from turnwise.config import ModelConfig
from turnwise.models.copies import _Visit, layers_of, map_weights, put_weights
from turnwise.models.load import load_model

IDS = torch.tensor([[70, 71, 72, 73]])


def loaded(folder: Path, in_files: bool = True, **options: Any) -> Any:
    return load_model(ModelConfig(name=str(folder), device="cpu"), in_files=in_files, **options)[0]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two models."""
    return [save_small_model(tmp_path / str(seed), seed) for seed in range(2)]


def test_new_weights_are_other_files_which_may_be_deleted(folders: list[Path]) -> None:
    model, other = map(loaded, folders)
    before, expected = model(IDS).logits, other(IDS).logits
    assert not torch.equal(before, expected)
    map_weights(model, folders[1])
    for file in folders[1].glob("*.safetensors"):
        file.unlink()
    assert torch.equal(model(IDS).logits, expected)
    put_weights(model, loaded(folders[0]))
    assert torch.equal(model(IDS).logits, before)


def test_a_weight_that_is_not_in_the_files_is_named(folders: list[Path]) -> None:
    model = loaded(folders[0])
    (file,) = folders[0].glob("*.safetensors")
    found = load_file(file)
    name = next(name for name in found if "layers" in name)
    save_file({key: each for key, each in found.items() if key != name}, file)
    with pytest.raises(OSError, match=f"weight {name} is missing"):
        map_weights(model, folders[0])


def test_what_was_taken_of_a_model_stays_when_it_gets_other_files(folders: list[Path]) -> None:
    model = loaded(folders[0])
    taken = {name: weight.detach().to("cpu") for name, weight in model.named_parameters()}
    assert all(taken[name].data_ptr() == p.data_ptr() for name, p in model.named_parameters())
    map_weights(model, folders[1])
    same = loaded(folders[0], in_files=False)
    assert all(torch.equal(taken[name], weight) for name, weight in same.named_parameters())


def test_angles_that_are_fixed_are_no_weights(folders: list[Path]) -> None:
    """The other model's are those of other lengths."""
    file = folders[0] / "config.json"
    written = json.loads(file.read_text())
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    written |= {"rope_parameters": rope, "max_position_embeddings": 8}
    file.write_text(json.dumps(written))
    model, other = loaded(folders[0], longest=64), loaded(folders[0])
    before = model(IDS).logits
    assert not torch.allclose(other(IDS).logits, before)
    put_weights(model, other)
    assert torch.equal(model(IDS).logits, before)


def test_a_layer_is_visited_and_left_and_so_is_that_of_a_copy(folders: list[Path]) -> None:
    """The processor by its number is another device here than the processor."""
    model = loaded(folders[0])
    layer = layers_of(model)[0]
    visit = _Visit(torch.device("cpu:0"))
    layer.register_forward_pre_hook(visit.begin)
    layer.register_forward_hook(visit.end, always_call=True)
    for each in (model, copy.deepcopy(model)):
        first = layers_of(each)[0]
        kept, seen = places(first), list[list[int]]()
        first.self_attn.register_forward_pre_hook(lambda *_: seen.append(places(first)))  # noqa: B023
        each(IDS)
        assert not set(seen[0]) & set(kept)
        assert places(first) == kept


def test_what_is_on_the_device_is_left_alone() -> None:
    layer = torch.nn.Linear(2, 2)
    kept, visit = places(layer), _Visit(torch.device("cpu"))
    visit.begin(layer)
    assert places(layer) == kept
    visit.end()
    assert places(layer) == kept


def places(part: torch.nn.Module) -> list[int]:
    return [weight.data_ptr() for weight in part.parameters()]
