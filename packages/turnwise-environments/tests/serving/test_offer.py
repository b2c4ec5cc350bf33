"""What is served: episodes whose policy is elsewhere (rewards, order, silence, what may be told),
and the words of the command."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from environment_playing import calling
from tests.fakes import Capitals
from turnwise.commands import cli
from turnwise.config import RolloutConfig
from turnwise.errors import ToolError
from turnwise.tools.tool import tool
from turnwise.types import Action, Outcome, Step, Task, Trajectory, Turn, Verdict
from turnwise_environments.serve import offer_of
from turnwise_environments.serving.offer import (
    LIMITS,
    Offer,
    OutsideEpisode,
    Session,
    detail_of,
    is_loopback,
)


class Slow(Capitals):
    @tool
    async def slow(self, country: str) -> str:
        """Think."""
        await asyncio.sleep(0.05)
        return country


def episode(environment: Any = None, patience: float = 20.0, **limits: Any) -> OutsideEpisode:
    made = environment or Slow()
    planned = Trajectory(made.tasks("train")[0], "g", 0, seed=1)
    config = RolloutConfig(**{"max_seconds": 20.0, **limits})
    return OutsideEpisode(planned=planned, prototype=made, limits=config, patience=patience)


def call(name: str, country: str = "France") -> Action:
    return calling(name, country=country)


async def test_actions_that_come_at_once_are_taken_in_order() -> None:
    played = episode()
    await played.begin()
    lands = ["Italy", "Spain", "Japan"]
    replies = await asyncio.gather(*(played.act(call("slow", land)) for land in lands))
    await played.close()
    assert [reply.observation.content for reply in replies] == lands


async def test_a_caller_that_goes_away_leaves_the_episode_in_order() -> None:
    played = episode()
    await played.begin()
    gone = asyncio.create_task(played.act(call("slow", "Italy")))
    await asyncio.sleep(0.01)
    gone.cancel()
    reply = await played.act(call("slow", "Spain"))
    await played.close()
    assert reply.observation.content == "Spain"


async def test_of_two_episodes_that_a_client_begins_at_once_one_runs() -> None:
    offer = Offer(Slow())
    session = Session(offer)
    await asyncio.gather(*(session.begin(0, "train", seed) for seed in range(2)))
    assert offer.under_way == 1
    await session.close()


async def test_a_client_that_goes_away_while_its_episode_begins_leaves_none() -> None:
    class Tardy(Capitals):
        async def reset(self, task: Task, seed: int) -> Any:
            await asyncio.sleep(0.05)
            return await super().reset(task, seed)

    offer = Offer(Tardy())
    session = Session(offer)
    beginning = asyncio.create_task(session.begin(0, "train", 0))
    await asyncio.sleep(0.01)
    beginning.cancel()
    await asyncio.wait({beginning})
    await session.close()
    assert offer.under_way == 0


async def test_turns_are_bounded_and_the_end_is_the_end() -> None:
    played = episode(max_turns=2)
    await played.begin()
    assert (await played.act(call("lookup"))).ended is None
    last = await played.act(call("lookup"))
    assert last.observation.content == "The capital is Paris."
    with pytest.raises(ToolError, match="the episode is over"):
        await played.act(call("lookup"))
    assert last.ended.outcome is Outcome.TRUNCATED_TURNS
    assert last.ended.reward == 0.0


async def test_silence_and_closing_give_the_episode_up() -> None:
    silent, closed = episode(patience=0.05), episode()
    await silent.begin()
    while silent.running:
        await asyncio.sleep(0.01)
    await closed.begin()
    acting = asyncio.create_task(closed.act(call("slow")))
    await asyncio.sleep(0.01)
    await closed.close()
    assert (await acting).observation.content == "France"
    await closed.close()
    for played, problem in ((silent, "silent for 0.05 s"), (closed, "the client has gone")):
        assert played.trajectory.outcome is Outcome.CANCELLED
        assert played.trajectory.reward is None
        assert problem in played.trajectory.problem


async def test_a_reset_that_fails_ends_the_episode() -> None:
    class Broken(Capitals):
        async def reset(self, task: Task, seed: int) -> Any:
            raise RuntimeError("no scene")

    reply = await episode(Broken()).begin()
    assert reply.ended.outcome is Outcome.INFRASTRUCTURE_RESET
    assert reply.reward is None


@pytest.mark.parametrize(
    ("answer", "detail", "told"),
    [
        ("Lyon", "expected Rome", False),
        ("Rome", "expected Rome", True),  # what the client wrote itself is no secret
        ("Lyon", "hidden: [3, 4]: wanted 12", False),
        ("Lyon", "assert f(3) == 12", False),
        ("Lyon", "answered 'Lyon'", True),
        ("Lyon", "Romeo was seen", True),
        ("Lyon", "112 steps", True),
    ],
)
def test_details_that_tell_the_secret_are_left_out(answer: str, detail: str, told: bool) -> None:
    secret = {"answers": ["Rome"], "tests": "# a test\nassert f(3) == 12", "value": 12, "yes": True}
    turns = (Turn(Action(answer, answer=answer), Step(done=True)),)
    verdict = Verdict(0.0, False, {}, detail)
    played = Trajectory(Task("a", "?", secret), "g", 0, 0, turns=turns, verdict=verdict)
    assert detail_of(played) == (detail if told else "")


RECIPE = """
name = "mine"
environment = { name = "mathematics", options = { tasks = { count = 30 } } }
rollout = { max_turns = 3, max_seconds = 7 }
reward.failure = -0.5
"""


def test_a_recipe_brings_its_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    offer = offer_of(str(path), ["rollout.max_tool_calls=2"], 4, 30.0)
    assert (offer.limits.max_turns, offer.limits.max_tool_calls) == (3, 2)
    assert (offer.sessions, offer.patience) == (4, 30.0)
    assert offer.count("heldout") == 30
    assert "the recipe's [reward] is left out" in capsys.readouterr().err


def test_an_environment_takes_options_and_a_shipped_recipe_of_its_name_comes_before_it() -> None:
    bare = offer_of("shop", ["count=20"], 1, 30.0)
    assert (bare.count("train"), bare.limits) == (20, LIMITS)
    shipped = offer_of("mathematics", ["environment.options.tasks.count=20"], 1, 30.0)
    assert shipped.count("train") == 20
    assert shipped.limits != LIMITS


@pytest.mark.parametrize("how", [[], ["--mcp", "--openenv"]])
def test_one_protocol(how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve-environment", "shop", *how])
    assert ended.value.code == 2
    assert "say how to serve it: --mcp or --openenv" in capsys.readouterr().err


def test_addresses_of_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.1.2.3", "example.org")))
