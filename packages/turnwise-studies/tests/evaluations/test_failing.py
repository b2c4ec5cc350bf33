"""Tools that are made to fail: how often, which way, and that nothing else changes."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from tests.environments.test_derived import Once, Silent, results
from tests.fakes import Capitals
from turnwise.environments.derived import guarded
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError
from turnwise.types import (
    Action,
    Outcome,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
)
from turnwise_studies.evaluations.failing import FAILURES, FailureRates, failing, recovery

LOOK = ToolCall("lookup", {"country": "Italy"})


def test_shares_of_the_calls_fail_each_way() -> None:
    steps = results(failing(Capitals(), FailureRates(error=0.2, junk=0.3)), 0, 1000, each=2)
    found = Counter(one.content for step in steps for one in step.results)
    contents = *(FAILURES[kind].content for kind in ("error", "junk")), "The capital is Rome."
    assert [found[one] for one in contents] == pytest.approx([400, 600, 1000], abs=60)
    assert all(len(step.results) == 2 for step in steps)
    assert all(one.call == LOOK for step in steps for one in step.results)
    oks = {one.content: one.ok for step in steps for one in step.results}
    assert [oks[one] for one in contents] == [False, True, True]
    for step in steps:
        assert step.observation.content == "\n".join(one.content for one in step.results)


def test_the_seed_alone_decides_which_calls_fail() -> None:
    environment = failing(Capitals(), FailureRates(error=0.5))

    def failed(seed: int) -> list[bool]:
        return [not step.results[0].ok for step in results(environment, seed, 50)]

    assert failed(1) == failed(1)
    assert failed(1) != failed(2)


@pytest.mark.wing("environments")
def test_everything_else_stays() -> None:
    """A perfect agent that never fails still succeeds, in other classes too."""
    from turnwise_environments.measurement import played

    desk = make_environment("desk", {"count": 20})
    for environment in (Capitals(), desk, guarded(Capitals(), {"lookup": 3})):
        made = failing(environment, FailureRates(error=1e-9))
        assert type(made).__name__ == type(environment).__name__
        for task in made.tasks("heldout")[:5]:
            play = asyncio.run(played(made, task, made.oracle(task)))
            assert play.trajectory.verdict.success


@pytest.mark.wing("environments")
def test_a_failed_call_is_not_run() -> None:
    """Everything that writes fails, so the database of the desk stays what it was."""
    from turnwise_environments.measurement import played

    made = failing(make_environment("desk", {"count": 20}), FailureRates(junk=1))
    task = made.tasks("heldout")[0]
    play = asyncio.run(played(made, task, made.oracle(task)))
    shown = {
        one.content for turn in play.trajectory.turns if turn.step for one in turn.step.results
    }
    assert shown == {FAILURES["junk"].content}


def test_nothing_is_called_after_the_end() -> None:
    """A call that was run, and no failed one, ends these episodes."""
    steps = results(failing(Once(), FailureRates(error=0.5)), 0, 50, each=2)
    error = FAILURES["error"].content
    failed = {tuple(one.content == error for one in step.results) for step in steps}
    assert failed == {(True, True), (True, False), (False,), (False, False)}


@pytest.mark.wing("environments")
def test_tools_fail_in_all_of_several_environments() -> None:
    sums = {"name": "mathematics", "options": {"tasks": {"count": 30, "max_steps": 1}}}
    tables = {"sums": sums, "proofs": {"options": {"tasks": {"count": 20}}}}
    broken = failing(make_environment("joint", {"environments": tables}), FailureRates(error=1.0))
    calculator = ToolCall("calculator", {"expression": "1"})
    task = next(one for one in broken.tasks("train") if one.info["environment"] == "sums")

    async def step() -> Step:
        own = broken.fresh()
        await own.reset(task.public(), 0)
        return await own.step(Action("", calls=(calculator,)))

    assert asyncio.run(step()).results[0].content == FAILURES["error"].content


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("erorr=0.2", "unknown failure 'erorr': did you mean 'error'"),
        ("error", "error=: give a share"),
        ("error=0.8,junk=0.4", "together above 0 and at most 1"),
        ("error=-0.1,junk=0.4", "from 0 to 1"),
        ("error=0", "above 0"),
    ],
)
def test_rates_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FailureRates.parse(text)


def test_rates_are_read_and_tools_are_needed() -> None:
    assert FailureRates.parse("error=0.2, junk=0.1") == FailureRates(0.2, 0.1)
    with pytest.raises(ConfigError, match="silent has no tools that could fail"):
        failing(Silent(), FailureRates(error=0.5))


ONE, OTHER = ToolCall("search", {"q": "a"}, "0.0"), ToolCall("search", {"q": "b"})


def called(call: ToolCall, kind: str | None = None) -> Turn:
    """A turn with a call, which failed this way or did not."""
    result = ToolResult(call, "fine") if kind is None else replace(FAILURES[kind], call=call)
    return Turn(Action("", calls=(call,)), Step(results=(result,)))


def ended(success: bool, *turns: Turn) -> Trajectory:
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    verdict = Verdict(float(success), success)
    return Trajectory(Task("t", "?"), "g", 0, 0, turns=turns, outcome=outcome, verdict=verdict)


def test_each_reaction_is_counted() -> None:
    answer = Turn(Action("", answer="x"), Step(done=True))
    found = recovery(
        [
            ended(True, called(ONE, "error"), called(replace(ONE, id="1.0")), answer),
            ended(False, called(ONE, "junk"), called(OTHER, "error"), answer),
            ended(False, called(ONE, "error"), called(ToolCall("read", {"q": "a"}))),
            ended(False, called(ONE, "junk")),
            ended(True, called(ONE), answer),
            replace(ended(True, called(ONE, "junk")), outcome=Outcome.GRADER_ERROR),
        ]
    )
    assert found["failures"] == {"error": 3, "junk": 3}
    once = dict.fromkeys(("same_call", "same_tool", "other_tool", "answer"), 1 / 6)
    assert found["reactions"] == once | {"none": 2 / 6}
    assert found["tried_again"] == 2 / 6
    assert (found["episodes"], found["success"]) == (4, 0.25)


def test_without_failures_there_are_no_shares() -> None:
    found = recovery([ended(True, called(ONE))])
    assert (found["tried_again"], found["success"]) == (None, None)
