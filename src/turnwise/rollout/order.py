"""The tasks of each step, as a function of the seed and the step alone.

Nothing is remembered, so a resumed run neither skips a task nor repeats one.
"""

import random
from collections.abc import Sequence

from turnwise.seeds import derive
from turnwise.types import Task


def tasks_of_step(tasks: Sequence[Task], step: int, count: int, seed: int) -> list[Task]:
    """The `count` tasks of a step; passes over `tasks` are shuffled anew, steps run across them,
    and a pass plays each task once."""
    chosen = []
    order: list[int] = []
    passed = -1
    for index in range(step * count, (step + 1) * count):
        epoch, position = divmod(index, len(tasks))
        if epoch != passed:
            order = list(range(len(tasks)))
            random.Random(derive(seed, "train", "order", epoch)).shuffle(order)
            passed = epoch
        chosen.append(tasks[order[position]])
    return chosen


def choose_tasks(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """`count` distinct tasks, the same ones for the same seed whatever else happens."""
    chosen = list(tasks)
    random.Random(derive(seed, "evaluation")).shuffle(chosen)
    return chosen[:count]
