"""Drives an engine in tests: with a deadline, and against a forward pass without a cache."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from tests.forward.models_for_tests import own_logprobs, tiny_tokenizer
from tests.rounding import assert_rounding
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.engines.embedded import EmbeddedEngine

Result = TypeVar("Result")
A_HANG = 240.0
"""Seconds after which a test says that something hangs; nothing takes so long if all is well."""
with TemporaryDirectory() as folder:
    TOKENIZER = tiny_tokenizer(Path(folder))
PROMPT = [3, 70, 12, 5, 41, 200, 9, 8, 120, 33]


@asynccontextmanager
async def running(
    model: Any,
    max_sequences: int = 4,
    max_tokens: int = 200,
    deterministic: bool = True,
    kv_cache_tokens: int | None = None,
    tokenizer: Any = None,
) -> AsyncIterator[EmbeddedEngine]:
    """An engine, with a deadline: nothing may hang."""
    engine = EmbeddedEngine(
        model,
        tokenizer or TOKENIZER,
        max_sequences=max_sequences,
        max_tokens=max_tokens,
        deterministic=deterministic,
        kv_cache_tokens=kv_cache_tokens,
    )
    try:
        async with asyncio.timeout(A_HANG):
            yield engine
    finally:
        await engine.stop()


async def sample(
    engine: Engine, prompt: list[int], max_tokens: int, session: str = "s", **sampling: Any
) -> Completion:
    """One request in a session that is open."""
    return await engine.generate(prompt, Sampling(max_tokens, **sampling), session=session)


async def once(engine: Engine, prompt: list[int], max_tokens: int, **sampling: Any) -> Completion:
    """One request in a session of its own."""
    engine.open("only")
    try:
        return await sample(engine, prompt, max_tokens, "only", **sampling)
    finally:
        engine.close("only")


async def checked(
    engine: Engine, model: Any, prompt: list[int], max_tokens: int, *session: str, **sampling: Any
) -> Completion:
    """`sample`, whose log-probabilities are those of a forward pass of `model`."""
    completion = await sample(engine, prompt, max_tokens, *session, **sampling)
    assert_logprobs(model, prompt, completion, sampling.get("temperature", 1.0))
    return completion


async def each(
    engine: Engine, count: int, of: Callable[[int], Awaitable[Result]], *others: Awaitable[Any]
) -> list[Result]:
    """Open so many sessions, named by their index, and do all at once what `of` says of them."""
    for index in range(count):
        engine.open(str(index))
    return (await asyncio.gather(*map(of, range(count)), *others))[:count]


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
