"""The attack panel finds each loophole, with the right finding, and none where there is none."""

import pytest

from broken_known import BROKEN, SOUND
from turnwise.environments.base import Environment
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import oracles
from turnwise_trust.audit.constants import constants
from turnwise_trust.audit.escapes import escapes
from turnwise_trust.audit.leaks import leaks
from turnwise_trust.audit.readers import prompts
from turnwise_trust.audit.subject import Subject
from turnwise_trust.audit.table import ATTACKS

PANEL = (constants, prompts, leaks, *ATTACKS, escapes)


def subject(kind: type[Environment]) -> Subject:
    made = kind()
    tasks = all_tasks(made)
    known = {task.id: actions for task, actions in oracles(made, tasks)}
    return Subject(kind.__name__, {}, made, tasks, 0, known)


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_loophole_is_found(kind: type[Environment]) -> None:
    probe, check = BROKEN[kind]
    (named,) = [one for one in probe(subject(kind)) if one.check == check]
    assert named.passed is False
    assert named.replay
    assert named.remedy


@pytest.mark.long
@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_nothing_is_found_where_there_is_nothing(kind: type[Environment]) -> None:
    found = [one for probe in PANEL for one in probe(subject(kind))]
    assert [one.check for one in found if one.passed is False] == []
    assert len(found) > 10
