"""Turns that go on while weights change: each token has the version of the weights that sampled it,
and servers that are lost or lie in the middle of it."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from fake_vllm import FakeVllm, Lies
from tests.forward.models_for_tests import reference_logprobs
from turnwise.errors import InfrastructureError, RunStoppedError
from turnwise_vllm.engine import VllmEngine
from vllm_driving import PROMPT, change, driven, loaded, once, serving, until


async def begun(engine: VllmEngine, server: FakeVllm) -> "asyncio.Task[Any]":
    """A turn of which the server has sampled two tokens."""
    server.hold.clear()
    server.before_hold = 2
    asked = len(server.bodies)
    turn = asyncio.create_task(once(engine, "turn"))
    await until(lambda: len(server.bodies) > asked)
    return turn


@pytest.mark.long
async def test_a_turn_goes_on_with_new_weights_and_each_token_says_which(tmp_path: Path) -> None:
    server = serving()
    async with driven(tmp_path, [server], in_flight=True) as (engine, model):
        await engine.load_weights({}, 4)
        turn = await begun(engine, server)
        old = copy.deepcopy(model)
        change(model)
        server.calls.clear()
        await engine.load_weights({}, 5)
        pause = "/pause?mode=keep&clear_cache=true"
        assert server.calls == [pause, "/collective_rpc", "/update_weight_version", "/resume"]
        assert not turn.done()
        server.hold.set()
        found = await turn
        assert found.version == [4, 4, 5, 5, 5, 5]
        new = reference_logprobs(model, [*PROMPT, *found.tokens], 6, 1.0)
        assert list(found.logprobs[2:]) == pytest.approx(new[2:], abs=1e-4)
        before = reference_logprobs(old, [*PROMPT, *found.tokens[:2]], 2, 1.0)
        assert list(found.logprobs[:2]) == pytest.approx(before, abs=1e-4)
        assert (await once(engine)).version == [5] * 6


async def test_a_server_that_dies_in_the_middle_of_an_update_costs_nothing_that_was_asked(
    tmp_path: Path,
) -> None:
    async with loaded(tmp_path, in_flight=True) as (engine, model, server):
        turn = await begun(engine, server)
        change(model)
        server.lies = Lies(hangs="/collective_rpc")
        loading = asyncio.create_task(engine.load_weights({}, 1))
        await until(lambda: server.calls[-1:] == ["/pause?mode=keep&clear_cache=true"])
        await server.die()
        server.lies, server.before_hold = Lies(), 0
        server.hold.set()
        await server.start()
        await loading
        assert (await turn).version == [1] * 6
        assert engine.fleet.restarts == 1


@pytest.mark.parametrize(
    ("lies", "message"),
    [
        (Lies(keeps=True), r"took nothing of the weights of version 1"),
        (Lies(fails="/collective_rpc"), r"not taken; .* 500 something is wrong"),
    ],
)
async def test_an_update_that_fails_stops_the_run_and_ends_the_turns_under_way(
    tmp_path: Path, lies: Lies, message: str
) -> None:
    async with loaded(tmp_path, in_flight=True) as (engine, model, server):
        turn = await begun(engine, server)
        change(model)
        server.lies = lies
        with pytest.raises(RunStoppedError, match=message):
            await engine.load_weights({}, 1)
        assert server.calls[-1] == "/resume"
        await engine.stop()
        engine.close("turn")
        with pytest.raises((asyncio.CancelledError, InfrastructureError)):
            await turn
