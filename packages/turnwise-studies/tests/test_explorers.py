"""The demonstrations of the study reflexion."""

from collections import defaultdict

import pytest

pytest.importorskip("turnwise_environments", reason="turnwise[environments] is not installed")

from turnwise.types import Trajectory
from turnwise_environments.measurement import all_tasks, played_all
from turnwise_studies.shipped.reflexion import EachMemory, exploring


@pytest.mark.long
def test_explorers_succeed_as_often_as_what_their_memory_keeps_lets_them() -> None:
    doors = EachMemory("doors", {"rooms": 2, "count": 100}, attempts=6)
    tasks = all_tasks(doors)
    oracles = [doors.oracle(task) for task in tasks]
    scripts = [exploring(own, other) for own, other in zip(oracles, oracles[::-1], strict=True)]
    played: dict[str, list[Trajectory]] = defaultdict(list)
    for play, oracle in zip(played_all(doors, tasks, scripts), oracles, strict=True):
        played[oracle[0].thought.split()[0]].append(play.trajectory)
    rates = {
        memory: sum(one.verdict is not None and one.verdict.success for one in of) / len(of)
        for memory, of in played.items()
    }
    assert rates == pytest.approx({"none": 0.32, "trajectory": 0.69, "reflection": 0.94}, abs=0.15)
