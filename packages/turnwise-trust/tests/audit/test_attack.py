"""Attacks whose episodes nobody grades: they are neither paid nor refused."""

import pytest

from asking import Asking, subject_for
from turnwise.types import Trajectory, Verdict
from turnwise_trust.audit.attack import HEDGED, UNGRADED
from turnwise_trust.audit.constants import constants, one_answer
from turnwise_trust.audit.floors import floors
from turnwise_trust.audit.quick import tried
from turnwise_trust.audit.readers import prompts


class Careless(Asking):
    """Its verifier raises for an answer that is no whole number."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = int(trajectory.answer or "") == int(trajectory.task.secret["sum"])
        return Verdict(float(right), right)


class Broken(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        raise ValueError("broken")


@pytest.mark.long
def test_what_nobody_grades_has_no_figure() -> None:
    probes = {"hedge": HEDGED, "constant": constants, "prompt": prompts, "one": one_answer}
    rows = tried(subject_for(Broken()), probes).findings
    told = {(one.check, one.figure, one.passed) for one in rows if one.note == UNGRADED}
    names = ("a hedged answer", "constant", "prompt", "one")
    assert told == {(name, None, None) for name in names}
    (row,) = HEDGED(subject_for(Careless()))
    assert (row.figure, row.passed, row.note) == (None, None, UNGRADED)
    (row,) = constants(subject_for(Careless()))
    assert row.note.startswith("the best of 5,")  # of 0, 1, 2, 10 and a right answer


def test_a_verifier_that_raises_for_the_oracle_fails() -> None:
    page = tried(subject_for(Broken()), {"floors": floors})
    assert [one.check for one in page.failed] == ["the oracle"]
    assert "grader_error: ValueError: broken" in page.failed[0].note
