"""Weights that stay in files: other ones are other files, and a pass leaves none behind."""

import copy
from pathlib import Path

import torch

from tests.fakes import save_small_model
from turnwise.config import ModelConfig
from turnwise.models.in_files import _Visit, layers_of, map_weights, put_weights
from turnwise.models.load import load_model

IDS = torch.tensor([[70, 71, 72, 73]])


def test_new_weights_are_other_files_which_may_be_deleted(tmp_path: Path) -> None:
    for seed in range(2):
        save_small_model(tmp_path / str(seed), seed)
    configs = [ModelConfig(name=str(tmp_path / str(seed)), device="cpu") for seed in range(2)]
    model, other = (load_model(config, in_files=True)[0] for config in configs)
    before, expected = model(IDS).logits, other(IDS).logits
    assert not torch.equal(before, expected)
    map_weights(model, tmp_path / "1")
    for file in (tmp_path / "1").glob("*.safetensors"):
        file.unlink()
    assert torch.equal(model(IDS).logits, expected)
    put_weights(model, load_model(configs[0], in_files=True)[0])
    assert torch.equal(model(IDS).logits, before)


def test_a_layer_is_visited_and_left_and_that_of_a_copy_is_not(tmp_path: Path) -> None:
    save_small_model(tmp_path)
    model, _ = load_model(ModelConfig(name=str(tmp_path), device="cpu"), in_files=True)
    layer = layers_of(model)[0]
    kept = [weight.data_ptr() for weight in layer.parameters()]
    visit = _Visit(torch.device("cpu"))
    layer.register_forward_pre_hook(visit.begin)
    layer.register_forward_hook(visit.end, always_call=True)
    for each, visited in ((model, True), (copy.deepcopy(model), False)):
        each(IDS)
        hook = next(iter(layers_of(each)[0]._forward_pre_hooks.values()))
        assert (hook.__self__._device is not None) == visited
    assert [weight.data_ptr() for weight in layer.parameters()] == kept
