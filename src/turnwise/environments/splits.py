"""Training and held-out tasks by what the tasks are, so that no other task moves one of them.

Not here: the search environment's split, which keeps names apart (`search/split.py`).
"""

from collections.abc import Iterable

from turnwise.environments.base import Split
from turnwise.seeds import derive
from turnwise.types import Task


def shuffled_split(tasks: Iterable[Task], heldout_share: float) -> dict[Split, list[Task]]:
    """Tasks by split, decided by each one's id, which is a hash of its content; shuffled by it."""
    ordered = sorted(tasks, key=lambda task: derive("task order", task.id))
    border = heldout_share * 2**63
    return {
        "train": [task for task in ordered if derive("split", task.id) >= border],
        "heldout": [task for task in ordered if derive("split", task.id) < border],
    }
