"""Hints that an environment gives away."""

import pytest

from benchmarks.audit_exam import BROKEN, SOUND
from turnwise_trust.audit.subject import subject_of
from turnwise_trust.audit.table import ATTACKS

HINTS = ("an error that gives the right call", "files that hold the answer")
FLAWS = {"Padlock": HINTS[0], "Report": HINTS[1], "Settings": "grader: outcome files"}


@pytest.mark.long
@pytest.mark.parametrize("name", FLAWS)
def test_what_is_given_away_is_found(name: str) -> None:
    (case,) = [one for one in BROKEN if one.name == name]
    (attack,) = [one for one in ATTACKS if one.check == FLAWS[name]]
    assert [one.passed for one in attack(subject_of(case.environment, {}, 8))] == [False]


@pytest.mark.long
@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_sound_environments_give_nothing_away(case: object) -> None:
    subject = subject_of(case.environment, {}, 8)
    found = [one for attack in ATTACKS if attack.check in HINTS for one in attack(subject)]
    assert [one.check for one in found if one.passed is False] == []
