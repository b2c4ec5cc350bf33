"""Several calls in one turn: their ids, their order, and what a deadline does to them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tests.rollout.clockwork import CALL, OneWord, Versioned, Waiting, run, runner
from turnwise.tools.tool import tool
from turnwise.types import Action, Outcome, ToolCall, Trajectory


class Sleeping(Waiting):
    """A tool that says after how long it came back; 0 is never."""

    tool_deadline = 30.0

    @tool
    async def sleep(self, seconds: float) -> str:
        """Sleep."""
        if not seconds:
            await asyncio.Event().wait()
        await asyncio.sleep(seconds)
        return f"{seconds:g}"


class Several(OneWord):
    """A call is three of them, the slowest first."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = seconds

    def parse(self, tokens: Sequence[int]) -> Action:
        if list(tokens) != [CALL]:
            return super().parse(tokens)
        calls = tuple(ToolCall("sleep", {"seconds": seconds}, "mine") for seconds in self.seconds)
        return Action("sleep", calls=calls)


def episodes(seconds: Sequence[float], count: int) -> list[Trajectory]:
    environment = Sleeping()
    made = runner(Versioned(), environment, seats=count)
    limits = made.limits.model_copy(update={"max_tool_calls": 9})
    made = replace(made, scaffold=Several(seconds), limits=limits)

    async def work() -> list[Trajectory]:
        (group,) = await made.collect(environment.tasks("train")[:1], count, 0, "train/0")
        return group.trajectories

    return run(work)


def test_ids_are_turn_and_position_and_results_come_in_the_order_of_the_calls() -> None:
    for member in episodes([3, 1, 2], count=2):
        assert member.outcome == Outcome.SUCCESS
        for turn, played in enumerate(member.turns[:-1]):
            assert played.step is not None
            ids = [f"{turn}.{position}" for position in range(3)]
            assert [call.id for call in played.action.calls] == ids
            assert [result.call.id for result in played.step.results] == ids
            assert [result.content for result in played.step.results] == ["3", "1", "2"]
            assert played.step.observation is not None
            assert played.step.observation.content == "3\n1\n2"


def test_one_call_that_never_returns_ends_the_episode_at_its_deadline() -> None:
    (member,) = episodes([1, 0, 2], count=1)
    assert member.outcome == Outcome.AGENT_RESOURCE_LIMIT
    assert "sleep: no result within 30 s" in member.problem
    assert member.reward is not None
    assert [call.id for call in member.turns[-1].action.calls] == ["0.0", "0.1", "0.2"]
