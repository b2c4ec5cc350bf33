"""The engine in a thread of its own: what goes on beside it, what crosses over in which order, and
what is left of it when it ends."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.engines.driving import A_HANG, PROMPT, TOKENIZER, assert_logprobs, checked, once, sample
from tests.engines.test_scheduling import BrokenModel, play
from tests.forward.models_for_tests import tiny_model
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.engines.threaded import ThreadedEngine
from turnwise.errors import ConfigError, InfrastructureError

LONG = Sampling(max_tokens=490, seed=1)


def threaded(model: Any, max_sequences: int = 4) -> ThreadedEngine:
    return ThreadedEngine(
        EmbeddedEngine(
            model, TOKENIZER, max_sequences=max_sequences, max_tokens=500, deterministic=False
        )
    )


@asynccontextmanager
async def ended(engine: ThreadedEngine) -> AsyncIterator[None]:
    """A deadline, after which the engine is stopped, and no thread may be left."""
    try:
        async with asyncio.timeout(A_HANG):
            yield
    finally:
        await engine.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [thread for thread in threading.enumerate() if thread.name == "turnwise-engine"]


async def begun(engine: ThreadedEngine) -> None:
    while engine.engine.counters.sampled < 3:
        await asyncio.sleep(0.001)


async def test_sampling_goes_on_while_the_event_loop_is_blocked() -> None:
    """As by a tool, by rendering or by whatever else is slow where the episodes are."""
    engine = threaded(tiny_model("qwen3"))
    async with ended(engine):
        engine.open("s")
        turn = asyncio.create_task(engine.generate(PROMPT, LONG, session="s"))
        await begun(engine)
        before, deadline = engine.engine.counters.passes, time.monotonic() + A_HANG / 2
        while engine.engine.counters.passes < before + 20 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert engine.engine.counters.passes >= before + 20
        assert not turn.done()
        engine.close("s")
        with pytest.raises(asyncio.CancelledError):
            await turn


async def test_it_samples_what_the_engine_samples() -> None:
    model, found = tiny_model("llama"), []
    engine = threaded(model)
    alone = EmbeddedEngine(model, TOKENIZER, max_sequences=4, max_tokens=500, deterministic=False)
    async with ended(engine):
        found.append(await once(engine, PROMPT, 12, seed=5))
        await play(engine, 9, seed=0)
    found.append(await once(alone, PROMPT, 12, seed=5))
    assert found[0] == found[1]
    assert engine.engine.evictions > 0


async def test_a_cancelled_turn_leaves_its_session_usable_at_once() -> None:
    model = tiny_model("qwen3")
    engine = threaded(model)
    async with ended(engine):
        engine.open("s")
        for wait in (True, False):  # in the middle of a turn, and before it has begun
            endless = asyncio.create_task(engine.generate(PROMPT, LONG, session="s"))
            await (begun(engine) if wait else asyncio.sleep(0))
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            await checked(engine, model, PROMPT, 4)
        assert engine.engine.counters.sampled < 490


async def test_turns_are_cancelled_at_any_moment() -> None:
    """Just before they begin, while they are sampled, and just when they end."""
    model = tiny_model("qwen3")
    engine = threaded(model, max_sequences=2)
    dice = random.Random(0)

    async def episode(name: str) -> None:
        engine.open(name)
        for _ in range(30):
            turn = sample(engine, PROMPT, 2, name, seed=1)
            with suppress(TimeoutError):
                await asyncio.wait_for(turn, dice.uniform(0, 0.01))
        await checked(engine, model, PROMPT, 4, name)
        engine.close(name)

    async with ended(engine):
        await asyncio.gather(*(episode(name) for name in "abcd"))


async def test_weights_that_nobody_waits_for_any_more_are_taken_all_the_same() -> None:
    model, other = tiny_model("llama"), tiny_model("llama", seed=4)
    engine = threaded(model)
    async with ended(engine):
        loading = asyncio.create_task(engine.load_weights(dict(other.state_dict()), 1))
        await asyncio.sleep(0)
        loading.cancel()
        after = await once(engine, PROMPT, 3)
        assert after.version == 1
        assert_logprobs(other, PROMPT, after)


async def test_mistakes_and_bugs_arrive_where_they_were_asked_for() -> None:
    model = BrokenModel(tiny_model("qwen3").config)
    engine = threaded(model)
    model.broken = True
    async with ended(engine):
        engine.open("s")
        with pytest.raises(RuntimeError, match="open already"):
            engine.open("s")
        with pytest.raises(RuntimeError, match="not open"):
            await engine.generate(PROMPT, LONG, session="t")
        with pytest.raises(ConfigError, match="empty"):
            await engine.generate([], LONG, session="s")
        with pytest.raises(ArithmeticError, match="a bug"):
            await engine.generate(PROMPT, LONG, session="s")
        engine.close("s")
        engine.close("s")
        engine.open("s")


@pytest.mark.long
@pytest.mark.parametrize("busy", [False, True])
async def test_weights_that_cannot_be_taken_are_told_and_forgotten(
    monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """Whoever loads them hears of it; turns go on, later weights are taken, and it can stop."""
    engine = threaded(tiny_model("llama"))

    def refused() -> None:
        raise RuntimeError("not these")

    async with ended(engine):
        engine.open("s")
        turn = asyncio.create_task(
            engine.generate(PROMPT, LONG if busy else Sampling(max_tokens=3), session="s")
        )
        await begun(engine)
        with monkeypatch.context() as patch:
            patch.setattr(engine.engine.runner, "refresh", refused)
            with pytest.raises(RuntimeError, match="not these"):
                await asyncio.wait_for(engine.load_weights({}, 1), A_HANG / 2)
        await engine.load_weights({}, 2)
        assert (await turn).tokens
        assert (await once(engine, PROMPT, 3)).version == 2


async def test_stopping_ends_the_thread_and_fails_who_waits() -> None:
    engine = threaded(tiny_model("qwen3"), max_sequences=1)
    async with ended(engine):
        for name in "ab":
            engine.open(name)
        turns = [asyncio.create_task(engine.generate(PROMPT, LONG, session=s)) for s in "ab"]
        await begun(engine)
        await engine.stop()
        await engine.stop()
        for turn in turns:
            with pytest.raises(InfrastructureError, match="stopped"):
                await turn
        with pytest.raises(InfrastructureError, match="stopped"):
            await engine.generate(PROMPT, LONG, session="a")
        with pytest.raises(InfrastructureError, match="stopped"):
            await engine.load_weights({}, 1)
        engine.close("a")


async def test_one_that_is_never_used_has_no_thread() -> None:
    before = set(threading.enumerate())
    engine = threaded(tiny_model("qwen3"))
    async with ended(engine):
        new = set(threading.enumerate()) - before
        assert not [thread for thread in new if "turnwise" in thread.name]
