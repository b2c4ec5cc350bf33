"""The attack panel finds each loophole, with the right finding, and none where there is none."""

import pytest

from asking import subject_for
from broken_known import BROKEN, SOUND
from turnwise.environments.base import Environment
from turnwise_trust.audit.constants import constants
from turnwise_trust.audit.escapes import escapes
from turnwise_trust.audit.leaks import leaks
from turnwise_trust.audit.readers import prompts
from turnwise_trust.audit.table import ATTACKS

PANEL = (constants, prompts, leaks, *ATTACKS, escapes)


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_loophole_is_found(kind: type[Environment]) -> None:
    probe, check = BROKEN[kind]
    (named,) = [one for one in probe(subject_for(kind())) if one.check == check]
    assert named.passed is False
    assert named.replay
    assert named.remedy


@pytest.mark.long
@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_nothing_is_found_where_there_is_nothing(kind: type[Environment]) -> None:
    subject = subject_for(kind())
    found = [one for probe in PANEL for one in probe(subject)]
    assert [one.check for one in found if one.passed is False] == []
    assert len(found) > 10
