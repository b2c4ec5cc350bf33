"""Hints that an environment gives away."""

import pytest

from broken_blind import BROKEN, SOUND
from turnwise_trust.audit.grader import grader
from turnwise_trust.audit.hints import hints
from turnwise_trust.audit.subject import Probe, subject_of

FLAWS: dict[str, tuple[Probe, str]] = {
    "Padlock": (hints, "an error that gives the right call"),
    "Report": (hints, "files that hold the answer"),
    "Settings": (grader, "grader: outcome files"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FLAWS)
def test_what_is_given_away_is_found(name: str) -> None:
    (case,) = [one for one in BROKEN if one.name == name]
    probe, check = FLAWS[name]
    failed = [one for one in probe(subject_of(case.environment, {}, 8)) if one.passed is False]
    assert check in [one.check for one in failed]


@pytest.mark.long
@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_sound_environments_give_nothing_away(case: object) -> None:
    found = list(hints(subject_of(case.environment, {}, 8)))
    assert [one.check for one in found if one.passed is False] == []
