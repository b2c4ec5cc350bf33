"""What a program of benchmarks counts as never solved, and what it makes of the tries after."""

import asyncio

import pytest

from benchmarks.new_skill import ROUND, figures, never_solved, table
from tests.graded import graded
from turnwise.types import Group, Task

SOLVED_AT = {"easy": 1, "late": ROUND + 3, "hard": 10_000}
"""The try at which each task is solved for the first time."""


class Tries:
    """A runner that solves each task at a fixed try."""

    def __init__(self) -> None:
        self.made = dict.fromkeys(SOLVED_AT, 0)

    async def collect(self, tasks, group_size, seed, label):
        groups = []
        for task in tasks:
            members = []
            for episode in range(group_size):
                self.made[task.id] += 1
                success = self.made[task.id] == SOLVED_AT[task.id]
                members.append(graded(success, task, episode))
            groups.append(Group(task, tuple(members)))
        return groups


def test_a_task_is_put_aside_once_it_is_solved() -> None:
    tries = Tries()
    tasks = [Task(name, "?") for name in SOLVED_AT]
    left = asyncio.run(never_solved(tries, tasks, 3 * ROUND + 1, seed=0))
    assert [task.id for task in left] == ["hard"]
    assert tries.made == {"easy": ROUND, "late": 2 * ROUND, "hard": 3 * ROUND + 1}


def test_figures_count_tasks_and_tries() -> None:
    found = figures({"a": (64, 0), "b": (64, 32), "c": (64, 1)})
    assert found["solved"] == 2
    assert found["success"] == pytest.approx(33 / 192)
    assert found["interval"][0] < 33 / 192 < found["interval"][1]
    assert figures({})["solved"] == 0


def test_the_table_has_a_row_for_each_seed_and_weights() -> None:
    part = figures({"a": (64, 0), "b": (64, 32)})
    one = {"seed": 3, "tasks": 50, "never solved": 2, "cold start again": part, "trained": part}
    assert table([one]).splitlines()[2].startswith("| 3 | 50 | 2 | cold start again | 1 (")
