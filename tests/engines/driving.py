"""Drives an engine in tests: with a deadline, and against a forward pass without a cache."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.forward.models_for_tests import own_logprobs, tiny_tokenizer
from tests.rounding import assert_rounding
from turnwise.engines.base import Completion, Sampling
from turnwise.engines.embedded import EmbeddedEngine

A_HANG = 240.0
"""Seconds after which a test says that something hangs; nothing takes so long if all is well."""
with TemporaryDirectory() as folder:
    TOKENIZER = tiny_tokenizer(Path(folder))
PROMPT = [3, 70, 12, 5, 41, 200, 9, 8, 120, 33]


def run(
    model: Any,
    body: Callable[[EmbeddedEngine], Awaitable[None]],
    max_sequences: int = 4,
    max_tokens: int = 200,
    deterministic: bool = True,
    kv_cache_tokens: int | None = None,
    tokenizer: Any = None,
) -> None:
    """Run `body` against an engine, with a deadline: nothing may hang."""

    async def main() -> None:
        engine = EmbeddedEngine(
            model,
            tokenizer or TOKENIZER,
            max_sequences=max_sequences,
            max_tokens=max_tokens,
            deterministic=deterministic,
            kv_cache_tokens=kv_cache_tokens,
        )
        try:
            await asyncio.wait_for(body(engine), A_HANG)
        finally:
            await engine.stop()

    asyncio.run(main())


async def once(engine: EmbeddedEngine, prompt: list[int], sampling: Sampling) -> Completion:
    """One request in a session of its own."""
    engine.open("only")
    try:
        return await engine.generate(prompt, sampling, session="only")
    finally:
        engine.close("only")


def assert_logprobs(
    model: Any, prompt: list[int], completion: Completion, temperature: float = 1.0
) -> None:
    history = [*prompt, *completion.tokens]
    count = len(completion.tokens)
    assert count > 0
    found = torch.tensor(completion.logprobs)
    assert_rounding(
        [found], model, lambda exact: [own_logprobs(exact, history, count, temperature)]
    )
