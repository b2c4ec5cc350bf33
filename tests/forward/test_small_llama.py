"""The written-out forward pass: equal to the model's own, and used for nothing else."""

import pytest
import torch

from tests.forward.models_for_tests import tiny_model
from tests.forward.shapes import SHAPES, follow, off, shaped
from turnwise.forward.runner import Runner

pytestmark = pytest.mark.numbers

UNKNOWN = {
    "bias": {"attention_bias": True},
    "another activation": {"hidden_act": "gelu"},
    "changing rotation": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_model(shape: str) -> None:
    model = shaped(shape)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.specialised
    assert off(follow(runner, 4), model) <= 1


def test_small_llama_and_qwen3_models_are_written_out() -> None:
    for family in ("qwen3", "llama", "mistral", "gemma3"):
        known = family in ("qwen3", "llama")
        assert Runner(tiny_model(family), 10, 10).specialised == known


@pytest.mark.parametrize("part", UNKNOWN)
def test_a_model_with_other_parts_runs_its_own_forward(part: str) -> None:
    assert not Runner(shaped("llama", **UNKNOWN[part]), 10, 10).specialised


def test_a_model_that_computes_something_else_runs_its_own_forward() -> None:
    model = shaped("llama")
    model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: 1.01 * output)
    assert not Runner(model, 10, 10).specialised


def test_bfloat16_rounds_as_bfloat16_may() -> None:
    model = shaped("qwen3", tie_word_embeddings=False).to(torch.bfloat16)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.specialised
    assert off(follow(runner, 4), model, torch.bfloat16) <= 1
