"""Sampling in bfloat16 from float32 weights: as near to them as transformers in bfloat16."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.engines.driving import run
from tests.forward.models_for_tests import reference_logprobs, tiny_model
from tests.forward.shapes import SHAPES, distance, follow, off, shaped
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import ConfigError
from turnwise.forward.runner import Runner

pytestmark = pytest.mark.numbers

STEPS = 32


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [16, 32, 64])
def test_logits_round_as_bfloat16_may_and_not_as_float32(shape: str, size: int) -> None:
    """Heads of 16 have no compiled kernels."""
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=size)
    found = follow(Runner(model, tokens=160, longest=40, autocast=True), STEPS)
    assert off(found, model) > 1 >= off(found, model, torch.bfloat16)


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
    with pytest.raises(ConfigError, match=r"not of this .*: set it to auto, or model\.dtype"):
        Runner(tiny_model(family), 10, 10, autocast=True)


@pytest.mark.parametrize("hidden", [48, 64])
def test_turns_of_an_engine(tokenizer: Any, hidden: int) -> None:
    """Their log-probabilities are about as near to float32 as transformers in bfloat16 is, over
    turns with observations, and a seed gives the same again; 64 is a multiple of a tile's rows."""
    sizes = {"hidden_size": hidden, "head_dim": 32, "max_position_embeddings": 256}
    exact = shaped(Qwen3Config, Qwen3ForCausalLM, **sizes)
    lower = shaped(Qwen3Config, Qwen3ForCausalLM, **sizes).to(torch.bfloat16)
    played: list[list[int]] = []

    async def episode(engine: EmbeddedEngine, index: int) -> tuple[list[int], list[float]]:
        engine.open(name := str(index))
        history, logprobs = list(range(3, 13 + index)), []
        for turn in range(3):
            sampling = Sampling(max_tokens=8, seed=10 * index + turn)
            completion = await engine.generate(history, sampling, session=name)
            logprobs += [math.nan] * (len(history) - len(logprobs)) + list(completion.logprobs)
            history += [*completion.tokens, *range(20, 22 + 4 * index)]
        engine.close(name)
        return history[: len(logprobs)], logprobs

    async def body(engine: EmbeddedEngine) -> None:
        own, bound = [], []
        for history, logprobs in await asyncio.gather(*(episode(engine, n) for n in range(4))):
            played.append(history)
            expected, rounded = (
                np.array(reference_logprobs(model, history, len(history) - 1))
                for model in (exact, lower)
            )
            own.append(np.nanmax(np.abs(np.array(logprobs[1:]) - expected)))
            bound.append(np.abs(rounded - expected).max())
        assert 0 < max(own) < 1.2 * max(bound)

    for _ in range(2):
        run(exact, tokenizer, body, autocast=True)
    assert played[:4] == played[4:]
