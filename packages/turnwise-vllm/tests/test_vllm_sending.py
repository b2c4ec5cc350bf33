"""Weights that are sent: vLLM's phases in order, a wire in place of NCCL, and each way to fail."""

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fake_vllm import FakeVllm, Json, Lies
from turnwise.errors import InfrastructureError, RunStoppedError
from turnwise_vllm.client import ServerLostError, ServerSlowError
from turnwise_vllm.sending import IpcSender, Part, batches, beside, described
from vllm_driving import Served, change, driven, once

PHASES = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
BEGUN = ["/shutdown_weight_transfer_engine", "/get_world_size", "/init_weight_transfer_engine"]


class Wire:
    """Both sides of a connection in this process: weights through a queue, in two parts."""

    def __init__(self) -> None:
        self.server = FakeVllm(Served())
        self.server.transfer, self.server.on_update = "nccl", self.receive
        self._there: queue.Queue[dict[str, Tensor]] = queue.Queue()
        self.broken = ""
        """What the wire says in place of sending."""

    def invitation(self, workers: int) -> Json:
        return {"world_size": 1 + workers}

    def join(self) -> None:
        self._there.put({})

    def parts(self, weights: Mapping[str, Tensor]) -> Iterator[Part]:
        names = list(weights)
        for some in (names[:3], names[3:]):
            part = {name: weights[name] for name in some}
            yield Part(described(part), lambda part=part: self._send(part))

    def _send(self, part: dict[str, Tensor]) -> None:
        if self.broken:
            raise RuntimeError(self.broken)
        self._there.put(part)

    def receive(self, info: Json) -> None:
        """What a server's worker does: wait for what it was told to expect."""
        weights = self._there.get(timeout=60)
        assert list(weights) == info.get("names", [])
        self.server.sample.model.load_state_dict(weights, strict=False)


def sent(folder: Path, wire: Wire, **settings: Any) -> AbstractAsyncContextManager[Any]:
    """An engine over the wire's server, which gets weights over the wire."""
    return driven(folder, [wire.server], sender=lambda: wire, transport="nccl", **settings)


async def test_every_version_is_sent_in_phases_and_a_server_joins_once(tmp_path: Path) -> None:
    wire = Wire()
    server = wire.server
    async with sent(tmp_path, wire) as (engine, model):
        for version in (3, 4):
            server.calls.clear()
            await engine.load_weights({}, version)
            assert engine.parity < 1e-5
            assert set((await once(engine, str(version))).version) == {version}
            change(model)
            update = [*PHASES[:2], *PHASES[1:], "/update_weight_version", "/resume"]
            joined = BEGUN if version == 3 else []
            assert server.calls == ["/pause?mode=wait&clear_cache=true", *joined, *update]
        assert server.invitations == [{"world_size": 2}]
        assert not server.loaded
        assert len(list(tmp_path.glob("*/*.safetensors"))) == 1  # to start servers with
    assert not list(tmp_path.glob("*/*.safetensors"))


@pytest.mark.long
async def test_a_server_that_was_started_again_joins_again_and_gets_what_was_kept(
    tmp_path: Path,
) -> None:
    """The learner's model has moved on by then: the weights are those of the version."""
    wire = Wire()
    server = wire.server
    async with sent(tmp_path, wire) as (engine, model):
        await engine.load_weights({}, 0)
        before = await once(engine, "before")
        change(model)
        await server.die()
        turn = asyncio.create_task(once(engine, "again"))
        await asyncio.sleep(0.1)
        await server.start()
        assert await turn == before
        assert (engine.fleet.restarts, len(server.invitations)) == (1, 2)


async def test_an_update_that_somebody_left_half_done_is_ended_first(tmp_path: Path) -> None:
    wire = Wire()
    wire.server.updating = True
    async with sent(tmp_path, wire) as (engine, _):
        await engine.load_weights({}, 0)
        assert engine.parity < 1e-5


@pytest.mark.long
@pytest.mark.parametrize(
    ("lies", "broken", "message"),
    [
        (Lies(fails=PHASES[0]), "", "not taken; .* refuses /start_weight_update: 500 somethi"),
        (Lies(fails=PHASES[1]), "", "not taken; .* refuses /update_weights: 500 something is"),
        (Lies(fails=PHASES[2]), "", "not taken; .* refuses /finish_weight_update: 500 someth"),
        (Lies(halves=PHASES[1]), "", r"max_restarts \(0\) allows: vLLM at \S+ is gone"),
        (Lies(), "NCCL error", r"\(0\) allows: weights for vLLM at \S+ cannot be sent: NCCL error"),
    ],
)
async def test_a_phase_that_fails_is_named_and_nothing_is_left_half_done(
    tmp_path: Path, lies: Lies, broken: str, message: str
) -> None:
    wire = Wire()
    server = wire.server
    async with sent(tmp_path, wire, max_restarts=0) as (engine, model):
        await engine.load_weights({}, 0)
        change(model)
        server.lies, wire.broken = lies, broken
        server.calls.clear()
        with pytest.raises(RunStoppedError, match=message):
            await engine.load_weights({}, 1)
        assert server.calls[-1] == "/resume"
        assert not server.updating or lies.fails == PHASES[2]


def test_the_work_beside_a_request_has_its_deadline_and_either_error_ends_both() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def refuse() -> None:
        raise InfrastructureError("refused")

    released = threading.Event()

    def hang() -> None:
        released.wait()

    def fail() -> None:
        raise RuntimeError("NCCL error")

    async def all_ways() -> None:
        with pytest.raises(ServerSlowError, match=r"there did not receive .*start_seconds = 0\.2$"):
            await beside(hang, never(), 0.2, "there")
        with pytest.raises(InfrastructureError, match=r"^refused$"):
            await beside(hang, refuse(), 30, "there")
        with pytest.raises(ServerLostError, match="there cannot be sent: NCCL error"):
            await beside(fail, never(), 30, "there")

    try:
        asyncio.run(asyncio.wait_for(all_ways(), 20))
    finally:
        released.set()


def test_weights_are_described_and_put_together_as_vllm_reads_them() -> None:
    weights = {
        "a": torch.zeros(2, 3),
        "b": torch.zeros(4, dtype=torch.bfloat16),
        "c": torch.zeros(100),
        "d": torch.zeros(1),
    }
    assert described(weights) == {
        "names": ["a", "b", "c", "d"],
        "dtype_names": ["float32", "bfloat16", "float32", "float32"],
        "shapes": [[2, 3], [4], [100], [1]],
    }
    found = [list(batch) for batch in batches(weights, 32)]
    assert found == [["a", "b"], ["c"], ["d"]]


def test_shared_memory_reaches_one_gpu() -> None:
    sender = IpcSender(torch.device("cuda", 0))
    assert sender.invitation(1) == {"packed": True}
    with pytest.raises(InfrastructureError, match=r"the server has 2: set engine\.transport=nccl"):
        sender.invitation(2)
