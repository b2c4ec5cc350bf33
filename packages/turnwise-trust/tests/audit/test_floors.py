"""Floors: idle agents and oracles, against what an environment declares."""

import pytest

from asking import Asking, failed
from turnwise.environments.tasksets import TaskSet
from turnwise.types import Trajectory, Verdict
from turnwise_trust.audit.floors import floors


class Idle(Asking):
    """Half of the tasks are solved by doing nothing, and the others cannot be solved."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.task.id.startswith("train")
        return Verdict(float(right), right)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, {"an agent that does nothing", "the oracle"}),
        ({"noop": 0.5, "oracle": 0.6}, set()),
        ({"noop": 0.5, "oracle": 0.9}, {"the oracle"}),
    ],
)
def test_what_is_declared_is_no_fault(scores: dict[str, float], said: set[str]):
    environment = Idle()
    environment.task_set = TaskSet(reference_scores=scores)
    assert set(failed(floors, environment)) == said
