"""The engine over vLLM against servers of the tests' own: weights, crashes, deadlines, answers."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fake_vllm import Json, Refusal
from tests.forward.models_for_tests import reference_logprobs
from turnwise.engines.base import Sampling, StopReason
from turnwise.errors import ConfigError, InfrastructureError, RunStoppedError
from turnwise_vllm import fleet as fleet_module
from vllm_driving import LIMIT, PROMPT, change, driven, loaded, once, scripted, serving, until


@pytest.mark.long
async def test_tokens_and_log_probabilities_are_those_of_the_newest_weights(tmp_path: Path) -> None:
    server = serving()
    async with driven(tmp_path, [server]) as (engine, model):
        for version in (0, 1, 2):
            await engine.load_weights({}, version)
            found = await once(engine)
            assert found.version == [version] * len(found.tokens)
            expected = reference_logprobs(model, [*PROMPT, *found.tokens], len(found.tokens), 1.0)
            assert list(found.logprobs) == pytest.approx(expected, abs=1e-4)
            change(model, version)
        assert engine.parity < 1e-5
    assert len(set(server.loaded)) == 3
    request = next(body for body in server.bodies if not body["ignore_eos"])
    assert request["seed"] == 3
    assert request["prompt"] == PROMPT
    assert not list(tmp_path.glob("weights/*"))


async def test_each_update_pauses_reloads_marks_and_resumes(tmp_path: Path) -> None:
    """A server that is not colocated never sleeps."""
    one = [
        "/pause?mode=wait&clear_cache=true",
        "/collective_rpc",
        "/update_weight_version",
        "/resume",
    ]
    async with loaded(tmp_path) as (engine, _, server):
        await engine.sleep()
        assert server.calls == one
        assert len((await once(engine)).tokens) == 6
        await engine.load_weights({}, 1)
    assert server.calls == one + one


async def test_log_probabilities_at_another_temperature_stop_the_run(tmp_path: Path) -> None:
    """As of a server with --logprobs-mode raw_logprobs."""
    server = serving()
    honest = server.sample

    def raw(body: Json) -> tuple[list[int], list[float], str]:
        tokens, _, reason = honest(body)
        return tokens, honest({**body, "temperature": 1.0})[1], reason

    server.sample = raw
    async with driven(tmp_path, [server], parity_bound=1e-3) as (engine, _):
        with pytest.raises(RunStoppedError, match="parity_bound"):
            await engine.load_weights({}, 0)


@pytest.mark.long
@pytest.mark.parametrize("parity_bound", [0.0, 0.02])
async def test_rounding_of_a_certain_model_is_refused_by_a_chosen_bound_alone(
    tmp_path: Path, parity_bound: float
) -> None:
    server = serving()
    load = server.on_load

    def rounded(folder: str) -> None:
        load(folder)
        server.sample.model.bfloat16()

    server.on_load = rounded
    async with driven(tmp_path, [server], parity_bound=parity_bound) as (engine, model):
        change(model)
        with torch.no_grad():
            model.get_output_embeddings().weight.mul_(8)
        if parity_bound:
            with pytest.raises(RunStoppedError, match=r"parity_bound is 0\.02"):
                await engine.load_weights({}, 0)
        else:
            await engine.load_weights({}, 0)
            assert engine.parity > 0.02


@pytest.mark.long
async def test_a_killed_server_costs_nothing_that_was_asked(tmp_path: Path) -> None:
    """Requests under way when it dies, and those that come while it is away, are answered once,
    with what they would have got, from the newest weights."""
    server = serving()
    async with driven(tmp_path, [server]) as (engine, model):
        change(model)
        await engine.load_weights({}, 4)
        calm = [await once(engine, f"calm {seed}", seed) for seed in range(6)]
        server.hold.clear()
        asked = len(server.bodies)
        turns = [asyncio.create_task(once(engine, f"{seed}", seed)) for seed in range(6)]
        await until(lambda: len(server.bodies) == asked + 6)
        await server.die()
        late = asyncio.create_task(once(engine, "late", 0))
        await asyncio.sleep(0.3)
        assert not any(turn.done() for turn in turns)
        server.hold.set()
        await server.start()
        assert await asyncio.gather(*turns) == calm
        assert await late == calm[0]
        assert engine.fleet.restarts == 1
        assert server.loaded[-1] == server.loaded[-2]  # the newest, again


@pytest.mark.long
async def test_a_server_that_somebody_restarted_gets_the_weights_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was asked of it while it was away."""
    monkeypatch.setattr(fleet_module, "WATCH_SECONDS", 0.3)  # it is back before the next look
    async with loaded(tmp_path) as (engine, _, server):
        before = await once(engine)
        await server.die()
        await server.start()
        await until(lambda: len(server.loaded) == 2)
        assert await once(engine) == before


@pytest.mark.long
async def test_a_server_that_comes_back_with_other_weights_stops_the_run(tmp_path: Path) -> None:
    async with loaded(tmp_path) as (engine, _, server):
        server.on_load = lambda folder: None
        server.sample = serving().sample
        await server.die()
        turn = asyncio.create_task(once(engine))
        await until(lambda: engine.fleet.restarts == 1)
        await server.start()
        with pytest.raises(InfrastructureError, match="parity_bound"):
            await turn
        with pytest.raises(RunStoppedError, match="parity_bound"):
            await engine.load_weights({}, 1)


@pytest.mark.long
async def test_a_server_lost_for_good_is_said_and_nothing_hangs(tmp_path: Path) -> None:
    async with loaded(tmp_path, start_seconds=0.3, max_restarts=2) as (engine, _, server):
        await server.die()
        for _ in range(2):
            with pytest.raises(
                InfrastructureError, match=r"max_restarts \(2\) allows: .*does not serve"
            ):
                await once(engine)
        with pytest.raises(RunStoppedError, match=r"max_restarts \(2\) allows"):
            await engine.load_weights({}, 1)
        assert engine.fleet.restarts == 2


@pytest.mark.slow
async def test_a_request_that_hangs_ends_at_its_deadline(tmp_path: Path) -> None:
    async with loaded(tmp_path, request_seconds=3) as (engine, _, server):
        server.hold.clear()
        with pytest.raises(InfrastructureError, match=r"within (engine\.request_seconds = )?3"):
            await once(engine)
        server.hold.set()
        assert len((await once(engine)).tokens) == 6


def refused(body: Json) -> tuple[list[int], list[float], str]:
    raise Refusal(400, "max_tokens is too\nlarge")


@pytest.mark.long
@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (lambda body: ([], [], "length"), "0 tokens and 0 log-probabilities"),
        (lambda body: ([5, 6], [-1.0], "length"), "2 tokens and 1 log-probabilities"),
        (lambda body: ([5], [math.nan], "length"), "its weights have diverged"),
        (lambda body: ("no", [-1.0], "length"), "no token ids"),
        (refused, r"refuses /inference/v1/generate: 400 max_tokens is too large$"),
        (lambda body: ([5], [-1.0], "abort"), "gave the request up; 5 times"),
    ],
)
async def test_a_bad_answer_is_an_error_of_infrastructure(
    tmp_path: Path, sample: Any, message: str
) -> None:
    async with loaded(tmp_path, scripted(sample)) as (engine, _, _):
        with pytest.raises(InfrastructureError, match=message):
            await once(engine)


@pytest.mark.long
async def test_weights_change_between_turns_and_never_within_one(tmp_path: Path) -> None:
    async with loaded(tmp_path) as (engine, model, server):
        server.hold.clear()
        asked = len(server.bodies)
        early = asyncio.create_task(once(engine, "early"))
        await until(lambda: len(server.bodies) == asked + 1)
        change(model)
        loading = asyncio.create_task(engine.load_weights({}, 1))
        await until(lambda: not engine.fleet.open)
        late = asyncio.create_task(once(engine, "late"))
        await asyncio.sleep(0.2)
        assert len(server.loaded) == 1
        assert len(server.bodies) == asked + 1
        server.hold.set()
        await loading
        assert (await early).version[0] == 0
        assert (await late).version[0] == 1


@pytest.mark.long
async def test_a_session_stays_with_its_replica_and_moves_when_that_is_lost(tmp_path: Path) -> None:
    servers = [serving(), serving()]
    async with driven(tmp_path, servers) as (engine, _):
        await engine.load_weights({}, 0)
        for server in servers:
            server.bodies.clear()
        names = ["a", "b", "c", "d"]
        for name in names:
            engine.open(name)

        async def turn(name: str, number: int) -> None:
            prompt = [*PROMPT, names.index(name)] * number
            await engine.generate(prompt, Sampling(2, seed=1), session=name)

        for number in (1, 2, 3):
            await asyncio.gather(*(turn(name, number) for name in names))
        homes = [{body["prompt"][5] for body in server.bodies} for server in servers]
        assert [len(home) for home in homes] == [2, 2]
        assert not homes[0] & homes[1]
        await servers[0].die()
        await asyncio.gather(*(turn(name, 4) for name in names))
        assert len(servers[1].bodies) == 2 * 3 + 4
        await servers[0].start()
        await until(lambda: len(servers[0].loaded) == 2)


async def test_closing_a_session_ends_its_request_at_the_server(tmp_path: Path) -> None:
    async with loaded(tmp_path) as (engine, _, server):
        server.hold.clear()
        engine.open("given up")
        turn = asyncio.create_task(engine.generate(PROMPT, Sampling(4), session="given up"))
        asked = len(server.bodies)
        await until(lambda: len(server.bodies) > asked)
        engine.close("given up")
        engine.close("given up")
        with pytest.raises(asyncio.CancelledError):
            await turn
        await until(lambda: server.cancelled == 1)
        server.hold.set()
        assert len((await once(engine)).tokens) == 6


async def test_a_full_context_is_an_outcome(tmp_path: Path) -> None:
    async with loaded(tmp_path) as (engine, _, _):
        engine.open("long")
        full = await engine.generate([7] * LIMIT, Sampling(4), session="long")
        assert (list(full.tokens), full.stop_reason) == ([], StopReason.CONTEXT)
        short = await engine.generate([7] * (LIMIT - 3), Sampling(8, seed=1), session="long")
        assert (len(short.tokens), short.stop_reason) == (3, StopReason.CONTEXT)
        exact = await engine.generate([7] * (LIMIT - 3), Sampling(3, seed=1), session="long")
        assert exact.stop_reason == StopReason.MAX_TOKENS


async def test_misuse_is_said(tmp_path: Path) -> None:
    async with driven(tmp_path, [serving()]) as (engine, _):
        with pytest.raises(RuntimeError, match="no weights are loaded"):
            await once(engine)
        await engine.load_weights({}, 0)
        with pytest.raises(ConfigError, match=r"set rollout\.top_p or rollout\.min_p, not both"):
            await once(engine, top_p=0.9, min_p=0.1)
        with pytest.raises(ConfigError, match="logit processors are functions of this process"):
            await once(engine, processors=(lambda history, logits: logits,))
        with pytest.raises(ConfigError, match="at least 1"):
            await once(engine, max_tokens=0)
        with pytest.raises(RuntimeError, match="is not open"):
            await engine.generate(PROMPT, Sampling(1), session="nobody")
        engine.open("one")
        with pytest.raises(RuntimeError, match="open already"):
            engine.open("one")
        for prompt, message in (([], "is empty"), ([9999], "outside"), ([-1], "outside")):
            with pytest.raises(ConfigError, match=message):
                await engine.generate(prompt, Sampling(1), session="one")


async def test_weights_by_name_are_copied_or_nothing_is_changed(tmp_path: Path) -> None:
    async with loaded(tmp_path) as (engine, model, _):
        norm = model.model.norm.weight
        with pytest.raises(ConfigError, match="did you mean"):
            await engine.load_weights({"model.norm.weigth": norm}, 1)
        with pytest.raises(ConfigError, match=r"has shape \[3\]"):
            await engine.load_weights({"model.norm.weight": norm[:3]}, 1)
        assert engine.version == 0
        await engine.load_weights({"model.norm.weight": norm * 2}, 1)
        assert engine.parity < 1e-5
        assert model.model.norm.weight[0].item() == 2.0


async def test_colocated_servers_sleep_until_the_next_weights(tmp_path: Path) -> None:
    async with loaded(tmp_path, colocated=True) as (engine, _, server):
        server.calls.clear()
        await engine.sleep()
        await engine.sleep()
        assert server.calls == ["/sleep?level=2"]
        waiting = asyncio.create_task(once(engine))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await engine.load_weights({}, 1)
        assert (await waiting).version[0] == 1
    assert server.calls == [
        "/sleep?level=2",
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/update_weight_version",
        "/wake_up?tags=kv_cache",
    ]


@pytest.mark.long
async def test_a_server_that_dies_asleep_is_brought_up_by_the_next_load(tmp_path: Path) -> None:
    async with loaded(tmp_path, colocated=True) as (engine, _, server):
        await server.die()
        await engine.sleep()
        assert engine.fleet.restarts == 0
        await server.start()
        await engine.load_weights({}, 1)
        assert engine.fleet.restarts == 1
        assert (await once(engine)).version[0] == 1


async def test_a_stopped_engine_says_so_and_lets_other_servers_run(tmp_path: Path) -> None:
    async with loaded(tmp_path) as (engine, _, server):
        server.hold.clear()
        turn = asyncio.create_task(once(engine))
        asked = len(server.bodies)
        await until(lambda: len(server.bodies) > asked)
        await engine.stop()
        await engine.stop()
        with pytest.raises(InfrastructureError, match="the engine was stopped"):
            await turn
        with pytest.raises(InfrastructureError, match="the engine was stopped"):
            await once(engine, "another")


@pytest.mark.parametrize(
    ("server", "settings", "message"),
    [
        ({"context": 40}, {}, r"a context of 40 tokens.*may have 48: lower rollout\.max_tokens"),
        ({"mode": "raw_logprobs"}, {}, "start it with --logprobs-mode processed_logprobs"),
        ({"asks_for_key": True}, {}, "asks for a key: start it without --api-key"),
        ({"scale_out": False}, {}, "generate: start the server with --enable-scale-out"),
        ({}, {"transport": "adapters"}, "takes no adapters: start the server with"),
        ({}, {"transport": "nccl"}, "nccl sends weights from a GPU, .* on cpu: set"),
        ({}, {"transport": "ipc"}, "ipc sends weights from a GPU, .* on cpu: set"),
        ({}, {"transport": "nccl", "sender": object}, "by nccl.*--weight-transfer-config '{"),
        ({}, {"transport": "ipc", "sender": object}, "by ipc.*--weight-transfer-config '{"),
    ],
)
async def test_what_cannot_work_is_refused_before_the_run(
    tmp_path: Path, server: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    served = serving()
    vars(served).update(server)
    with pytest.raises(ConfigError, match=message):
        async with driven(tmp_path, [served], **settings):
            raise AssertionError


async def test_a_bug_in_the_background_reaches_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving()

    async def broken(*_: object) -> None:
        raise KeyError("a bug")

    async with driven(tmp_path, [server]) as (engine, _):
        await engine.load_weights({}, 0)
        monkeypatch.setattr(engine.fleet, "_bring_back", broken)
        await server.die()
        with pytest.raises(KeyError, match="a bug"):
            await once(engine)
        with pytest.raises(KeyError, match="a bug"):
            await engine.load_weights({}, 1)
