"""Attention by spans of the cache: where a model can have it, and that others do without."""

import asyncio
from typing import Any

import pytest
import torch
from transformers import MistralForCausalLM

from tests.engines.driving import PROMPT, assert_logprobs, run
from tests.engines.models_for_tests import tiny_model
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.engines.runner import Runner
from turnwise.engines.spans import attention_in_spans


class KeepsToItself(MistralForCausalLM):  # type: ignore[misc]
    """A model that passes nothing on to its attention."""

    def forward(
        self, input_ids: Any = None, position_ids: Any = None, pool: Any = None, **kwargs: Any
    ) -> Any:
        return super().forward(input_ids, position_ids=position_ids, **kwargs)


def made(kind: str) -> Any:
    """A model that is not written out, of each kind."""
    if kind == "keeps to itself":
        model = KeepsToItself(tiny_model("mistral").config).eval()
        model.load_state_dict(tiny_model("mistral").state_dict())
        return model
    family, _, implementation = kind.partition(" ")
    model = tiny_model(family)
    model.set_attn_implementation(implementation or "sdpa")
    return model


@pytest.mark.parametrize(
    ("kind", "by_spans"),
    [("mistral", True), ("gemma3", True), ("gemma3 eager", False), ("keeps to itself", False)],
)
def test_histories_of_all_lengths_are_seen_by_each(
    tokenizer: Any, kind: str, by_spans: bool
) -> None:
    model = made(kind)
    assert Runner(model, 10, 10).cache.layers[0].by_spans == by_spans

    async def turn(engine: EmbeddedEngine, index: int) -> None:
        prompt = (PROMPT * 20)[: 3 + 40 * index]
        sampling = Sampling(max_tokens=5, seed=index)
        completion = await engine.generate(prompt, sampling, session=str(index))
        assert_logprobs(model, prompt, completion)

    async def body(engine: EmbeddedEngine) -> None:
        for index in range(5):
            engine.open(str(index))
        await asyncio.gather(*(turn(engine, index) for index in range(5)))

    run(model, tokenizer, body, slots=5)


@pytest.mark.parametrize("family", ["mistral", "gemma3", "qwen3"])
def test_without_a_cache_the_model_attends_as_ever(family: str) -> None:
    """Another thread may run it meanwhile."""
    model = tiny_model(family)
    ids = torch.tensor([PROMPT * 2])
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        with attention_in_spans(model):
            assert torch.equal(model(input_ids=ids, use_cache=False).logits, expected)
    assert model.config._attn_implementation == "sdpa"
