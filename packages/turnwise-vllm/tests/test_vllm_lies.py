"""Servers that lie: each is found at the first update after it began to, with a message that says
what it did."""

import asyncio
from pathlib import Path

import pytest
import torch

from fake_vllm import FakeVllm, Lies, constant
from turnwise.errors import InfrastructureError, RunStoppedError
from turnwise_vllm.client import ServerRefusedError, ServerSlowError
from turnwise_vllm.replica import Replica
from turnwise_vllm.transports import Files
from vllm_driving import change, driven, loaded, once, serving

PHASES = ("/pause", "/collective_rpc", "/update_weight_version", "/weight_info", "/resume")
GENERATE = "/inference/v1/generate"
LOST = r"engine\.max_restarts \(1\) allows: vLLM at \S+ "
UNKNOWN = r"does not say which weights sampled each of its 16 tokens: weight_versions is "


@pytest.mark.long
@pytest.mark.parametrize(
    ("lies", "message"),
    [
        (Lies(keeps=True), r"took nothing of the weights of version 1: .* by [1-9]"),
        (Lies(label="others"), r"says that its weights are 'others' after it was given '.*-1'"),
        (Lies(spans=(("OLD", 0, None),)), LOST + "sampled with weights of version 0 after .* 1$"),
        (
            Lies(spans=(("NEW", 0, 2), ("OLD", 2, None))),
            LOST + "sampled with weights of version 0 after those of version 1",
        ),
        (Lies(spans=(("default", 0, None),)), LOST + "sampled with the weights 'default', which"),
        (Lies(spans=(("NEW", 0, 2), ("NEW", 3, None))), UNKNOWN + r"\[\{"),
        (Lies(spans=(("NEW", 0, 15),)), UNKNOWN + r"\[\{"),
        (Lies(without="weight_versions"), UNKNOWN + "None, which vLLM 0.32 or later fills in"),
        (Lies(without="logprobs"), r"cannot be compared .* no token ids with log-probabilities"),
        (Lies(without="token_ids"), r"cannot be compared .* no token ids with log-probabilities"),
        (Lies(more=1), r"of version 1: .* 17 tokens and 16 log-probabilities"),
        (Lies(fails=GENERATE), r"cannot be compared .* refuses /inference/v1/generate: 500 somet"),
        (Lies(halves=GENERATE), LOST + "is gone"),
        (Lies(halves="/collective_rpc"), LOST + "is gone"),
        (Lies(fails="/collective_rpc"), r"not taken; is the server's model .* 500 something is"),
    ],
)
async def test_a_lie_is_found_at_the_first_update(tmp_path: Path, lies: Lies, message: str) -> None:
    async with loaded(tmp_path, max_restarts=1) as (engine, model, server):
        server.lies = lies
        change(model)
        with pytest.raises(RunStoppedError, match=message) as caught:
            await engine.load_weights({}, 1)
        assert "\n" not in str(caught.value)
        assert server.url in str(caught.value)


@pytest.mark.long
async def test_an_update_that_was_not_taken_is_found_however_small(tmp_path: Path) -> None:
    """Log-probabilities move by less than the bound, so that parity has nothing to say."""
    async with loaded(tmp_path) as (engine, model, server):
        await engine.load_weights({}, 1)  # the same weights again: nothing has to move
        for kept in (False, True):
            server.lies.keeps = kept
            with torch.no_grad():
                model.get_output_embeddings().weight[:50].mul_(1.01)
            if not kept:
                await engine.load_weights({}, 2)
                assert engine.parity < 1e-5
                continue
            with pytest.raises(RunStoppedError, match=r"took nothing .* by 0\.00\d+ on average"):
                await engine.load_weights({}, 3)


async def test_a_lie_about_a_turns_weights_costs_a_restart_and_no_token(tmp_path: Path) -> None:
    """As when a server was started again from outside between two checks: its first answer says
    so, is not counted, and the turn is sampled again with the weights of the run."""
    server = serving()
    async with driven(tmp_path, [server]) as (engine, model):
        change(model)
        await engine.load_weights({}, 3)
        calm = await once(engine, "calm")
        server.lies = Lies(spans=(("default", 0, None),))
        turn = asyncio.create_task(once(engine, "turn"))
        while engine.fleet.restarts == 0:
            await asyncio.sleep(0.01)
        server.lies = Lies()
        assert await turn == calm
        assert engine.fleet.restarts == 1


@pytest.mark.parametrize(
    ("lie", "error"),
    [pytest.param("hangs", ServerSlowError, marks=pytest.mark.slow), ("fails", ServerRefusedError)],
)
def test_each_phase_of_an_update_has_a_deadline_and_the_server_goes_on(
    tmp_path: Path, lie: str, error: type[InfrastructureError]
) -> None:
    """What was begun is cleared on the way out: a server that can resume is resumed."""

    async def update(phase: str) -> None:
        async with FakeVllm(constant) as server:
            replica = Replica(None, server.url, "fake", Files(tmp_path, 3), 3, 3)
            await replica.bring_up(tmp_path, "one")
            server.calls.clear()
            setattr(server.lies, lie, phase)
            said = f"{server.url} did not answer {phase}.* within 3 s"
            refused = f"{server.url} refuses {phase}.*: 500 something is wrong$"
            with pytest.raises(error, match=said if lie == "hangs" else refused):
                await replica.update(tmp_path, "two")
            assert ("/pause?mode=abort" in server.calls) == (phase not in ("/pause", "/resume"))
            assert (server.calls[-1] == "/resume") == (phase != "/resume")
            await replica.stop()

    async def all_phases() -> None:
        await asyncio.gather(*map(update, PHASES))

    asyncio.run(all_phases())


async def test_a_turn_of_which_half_comes_back_is_asked_for_again_and_then_given_up(
    tmp_path: Path,
) -> None:
    async with loaded(tmp_path) as (engine, _, server):
        server.lies.halves = GENERATE
        with pytest.raises(InfrastructureError, match=r"is gone: .*; 5 times$"):
            await once(engine)
        assert engine.fleet.restarts == 0  # it is well otherwise
