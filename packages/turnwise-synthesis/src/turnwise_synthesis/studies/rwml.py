"""The predictions of the study rwml: what a move brings on a lake of the recipe `frozen_lake`."""

import random
from collections.abc import Iterator

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, SPLITS, Split, TaskSet, identities
from turnwise.ranges import Count, Share
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity
from turnwise_environments.games.base import DIRECTIONS
from turnwise_environments.games.frozen_lake import RULES, FrozenLake
from turnwise_synthesis.next_observations import NEAR, NextObservations

STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


class Moves(NextObservations):
    """The map after one move; training tasks are of lakes for training, held-out ones of others.

    What is too easy, a move against the edge, is left out, where RWML keeps a little of it.
    """

    facts = EnvironmentSpec("lake_moves", "1", parts=NextObservations.facts.parts)

    def __init__(self, lakes: Count = 8000, moves: Count = 8, max_distance: Share = NEAR) -> None:
        """Up to `moves` moves on each lake; the reward is as in NextObservations."""
        lake = FrozenLake(maps=lakes, frozen_share=0.7)
        tasks = {split: list(_tasks(lake, split, moves)) for split in SPLITS}
        self.task_set = TaskSet.of(tasks, SOLVED, content=identities)
        self.max_distance = max_distance


def _tasks(lake: FrozenLake, split: Split, moves: int) -> Iterator[Task]:
    for task in lake.task_set.tasks[split]:
        rows = task.data["rows"]
        reached = [
            (before, name, _moved(before, name, len(rows)))
            for before, here in enumerate("".join(rows))
            if here not in "HG"
            for name in DIRECTIONS
        ]
        found = [one for one in reached if one[0] != one[2]]
        drawn = random.Random(derive("rwml", task.id))
        for before, name, after in drawn.sample(found, min(moves, len(found))):
            asked = f"{RULES}\n{_view(rows, before)}\n<move> {name}</move>\nWhat comes back?"
            shown = _view(rows, after)
            yield Task(identity([asked, shown]), asked, {"answer": shown})


def _moved(place: int, name: str, width: int) -> int:
    """The place after a move; gymnasium's table of a lake takes milliseconds to make."""
    row, column = divmod(place, width)
    down, right = STEPS[name]
    rows, columns = (min(max(one, 0), width - 1) for one in (row + down, column + right))
    return width * rows + columns


def _view(rows: list[str], place: int) -> str:
    """The map as the game shows it: P where the agent stands, X where it fell in."""
    width = len(rows[0])
    signs = [list(row) for row in rows]
    here = signs[place // width][place % width]
    signs[place // width][place % width] = "X" if here == "H" else "P"
    return "\n".join(" ".join(row) for row in signs)
