"""Reactions to failed calls, by hand."""

from dataclasses import replace

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
from turnwise_studies.evaluations.failing import FAILURES
from turnwise_studies.evaluations.recovery import recovery

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
    assert found["reactions"] == {
        "same_call": 1 / 6,
        "same_tool": 1 / 6,
        "other_tool": 1 / 6,
        "answer": 1 / 6,
        "none": 2 / 6,
    }
    assert found["tried_again"] == 2 / 6
    assert (found["episodes"], found["success"]) == (4, 0.25)


def test_without_failures_there_are_no_shares() -> None:
    found = recovery([ended(True, called(ONE))])
    assert found["tried_again"] is None
    assert found["success"] is None
