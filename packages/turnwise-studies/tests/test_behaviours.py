"""Behaviours of demonstrations that studies imitate."""

import pytest

from tests.rollout.test_demonstrations import make
from turnwise.types import Action, Outcome, ToolCall
from turnwise_studies.behaviours import checked, faulty, premature

CALL, OTHER = Action("", calls=(ToolCall("look", {"at": "x"}),)), [Action("", answer="9")]


@pytest.mark.parametrize(("behaviour", "calls"), [("premature", 1), ("checked", 1), ("faulty", 2)])
def test_each_behaviour(behaviour: str, calls: int) -> None:
    made = make({behaviour: 1.0})
    assert {one.outcome for one in made} == {Outcome.SUCCESS}
    assert {one.tool_calls for one in made} == {calls}
    assert not any(turn.action.error for one in made for turn in one.turns)


def test_scripts_as_they_are_rewritten() -> None:
    early = Action("", "the last thought", answer="done")
    second = Action("", "a thought", calls=CALL.calls)
    (first, given) = premature([CALL, second, early], OTHER)
    assert (first, given.thought, given.answer, given.calls) == (CALL, "a thought", "x", ())
    assert premature([CALL, early], OTHER) == [CALL, early]
    thought = Action("", "1+6=7", answer="7")
    assert checked([CALL, thought], OTHER)[-1].thought == "1+6=7 check: 1+6=7"
    slip, again, last = faulty([CALL, thought], OTHER)
    assert (slip.calls[0].arguments, again, last) == ({"at": "x("}, CALL, thought)
    assert faulty([early], OTHER) == [early]
