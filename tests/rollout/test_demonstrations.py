"""Demonstrations are episodes like any other, and as mediocre as asked for."""

import asyncio

import pytest

from tests.fakes import Arms, Capitals
from tests.rollout.playing import scaffold_of
from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.rollout.demonstrations import (
    BEHAVIOURS,
    Behaviour,
    astray,
    demonstrate,
    direct,
    guessing,
    hasty,
    mistaken,
    thoughtless,
)
from turnwise.types import Action, Outcome, Task, ToolCall, Trajectory

LIMITS = RolloutConfig(max_turns=4, max_turn_tokens=80, max_tokens=700)


def make(
    shares: dict[str, float],
    count: int = 12,
    seed: int = 0,
    environment: Environment | None = None,
    limits: RolloutConfig = LIMITS,
    turns: int | None = None,
) -> list[Trajectory]:
    environment = environment or Capitals()
    given = environment, scaffold_of(environment), limits, environment.tasks("train")
    return asyncio.run(demonstrate(*given, shares, count, seed, turns=turns))


@pytest.mark.parametrize(
    ("behaviour", "successes", "calls", "malformed"),
    [
        ("faithful", {True}, {1}, {0}),
        ("thoughtless", {True}, {1}, {0}),
        ("hasty", {True}, {1}, {0}),
        ("guessing", {True, False}, {0}, {0}),
        ("direct", {True}, {0}, {0}),
        ("mistaken", {False}, {1}, {0}),
        ("malformed", {False}, {1}, {3}),
    ],
)
def test_each_behaviour(
    behaviour: str, successes: set[bool], calls: set[int], malformed: set[int]
) -> None:
    made = make({behaviour: 1.0})
    assert {one.outcome == Outcome.SUCCESS for one in made} <= successes
    assert {one.tool_calls for one in made} == calls
    errors = {sum(turn.action.error is not None for turn in one.turns) for one in made}
    assert errors == malformed


@pytest.mark.parametrize("behaviour", [hasty, mistaken])
def test_moves_without_arguments_name_nothing(behaviour: Behaviour) -> None:
    moves = [Action("", calls=(ToolCall("left", {}),))] * 3
    assert behaviour(moves, moves) == moves


def test_what_the_scaffold_cannot_write_is_said_in_one_line() -> None:
    class Twice(Capitals):
        def oracle(self, task: Task) -> list[Action]:
            return [Action("", calls=(ToolCall("lookup", {"country": task.id}),) * 2)]

    told = "cannot write the oracle's turn of task .* lookup, lookup: ValueError: without scaffold"
    with pytest.raises(ExceptionGroup) as caught:
        make({"faithful": 1.0}, 1, environment=Twice())
    assert caught.group_contains(ConfigError, match=told)


def test_demonstrations_of_an_oracle_that_fails_are_refused() -> None:
    limits = LIMITS.model_copy(update={"max_turn_tokens": 4})
    with pytest.raises(RunStoppedError, match="8 of 8 demonstrations by the environment's oracle"):
        make({"faithful": 1.0}, 8, limits=limits)


def test_demonstrations_that_run_out_of_time_are_no_failure_of_the_oracle() -> None:
    limits = LIMITS.model_copy(update={"max_seconds": 1e-9, "max_ungraded_share": 1.0})
    with pytest.raises(RunStoppedError, match=r"8 of 8 .* time: that says nothing of the oracle"):
        make({"faithful": 1.0}, 8, limits=limits)


def test_demonstrations_are_cut_after_their_turns_and_no_other_failure_is_let_through() -> None:
    limits = RolloutConfig(max_turns=20, max_tool_calls=20, max_turn_tokens=80, max_tokens=2000)

    def played(turns: int, limits: RolloutConfig = limits) -> list[Trajectory]:
        return make({"faithful": 1.0}, 3, 0, Arms(pulls=20), limits, turns)

    assert [one.outcome for one in played(5)] == [Outcome.TRUNCATED_TURNS] * 3
    assert {len(one.turns) for one in played(5)} == {5}
    assert {one.outcome for one in played(20)} == {Outcome.SUCCESS}
    with pytest.raises(RunStoppedError, match="demonstrations by the environment's oracle fail"):
        played(5, limits.model_copy(update={"max_tool_calls": 2}))


def test_scripts_that_end_without_a_call() -> None:
    answer, call = Action("", answer="7"), Action("", calls=(ToolCall("look", {"at": "x"}),))
    other = [Action("", answer="9")]
    for name in BEHAVIOURS.names():
        assert BEHAVIOURS.get(name)([answer], other), name
    assert hasty([answer], other) == [answer]
    nameless = Action("", calls=(ToolCall("wait", {}),))
    looked_up = Action("", calls=(ToolCall("search", {"query": "TarFile"}),))
    assert hasty([nameless, nameless, looked_up, answer], other)[-1].answer == "TarFile"
    assert mistaken([call, answer], other)[-1].answer == "x"
    assert mistaken([call, Action("", answer="done"), answer], other)[-1].answer == "9"
    thought = Action("", "1+6=7", answer="7")
    assert [one.thought for one in thoughtless([call, thought], other)] == ["", ""]
    assert direct([call, thought], other) == [Action("", answer="7")]
    assert guessing([answer], [call])[0].answer == "nothing"
    assert astray([answer], other) == other
    assert direct([call], other)[0].answer == "nothing"


def test_demonstrations_repeat_with_the_seed() -> None:
    shares = dict.fromkeys(BEHAVIOURS.names(), 1.0)
    first, again, other = make(shares), make(shares), make(shares, seed=1)
    assert [one.tokens.ids.tolist() for one in first] == [one.tokens.ids.tolist() for one in again]
    assert [one.written for one in first] != [one.written for one in other]
