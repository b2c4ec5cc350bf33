"""Sampling in bfloat16 from float32 weights: as near to them as transformers in bfloat16."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.engines.models_for_tests import tiny_model
from tests.engines.shapes import SHAPES, distance, follow, model_logprobs, shaped
from turnwise.engines.runner import Runner
from turnwise.errors import ConfigError

STEPS = 32


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [16, 32, 64])
def test_logits_are_as_near_as_those_of_a_bfloat16_copy(shape: str, size: int) -> None:
    """Heads of 16 have no compiled kernels."""
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=size)
    lower = shaped(config_class, model_class, **options, head_dim=size).to(torch.bfloat16)
    found = follow(Runner(model, tokens=160, longest=40, autocast=True), STEPS)
    own = [(history, model_logprobs(lower, history)) for history, _ in found]
    assert 0 < distance(found, model) < 1.2 * distance(own, model)


def test_weights_stay_float32_and_new_ones_are_seen() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40, autocast=True)
    before = follow(runner, 4)
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 1.1
    assert model.dtype == torch.float32
    same = follow(runner, 4)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(before, same, strict=True))
    runner.refresh()
    assert distance(follow(runner, 4), model) < distance(before, model) / 4


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_a_model_that_is_not_written_out_is_an_error(family: str) -> None:
    with pytest.raises(ConfigError, match=r"not of this .*: set it to false, or model\.dtype"):
        Runner(tiny_model(family), 10, 10, autocast=True)
