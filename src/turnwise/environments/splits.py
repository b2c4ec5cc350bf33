"""Training and held-out tasks by what the tasks are, so that no other task moves one of them.

Not here: the search environment's split, which keeps names apart (`search/split.py`).
"""

import json
from collections.abc import Iterable, Sequence

from turnwise.environments.base import Environment, Split
from turnwise.errors import DataError
from turnwise.seeds import derive
from turnwise.types import Task


def check_splits(environment: Environment, train: Sequence[Task], heldout: Sequence[Task]) -> None:
    """Raises DataError when all held-out tasks are training tasks, by what they show, hold and
    expect, whatever their ids: then an evaluation would measure what was learned by heart."""
    known = {_content(task) for task in train}
    if heldout and not environment.same_splits and all(_content(one) in known for one in heldout):
        raise DataError(
            f"environment {environment.spec.name}: its held-out tasks are training tasks: "
            "tasks('heldout') has to give others than tasks('train')"
        )


def _content(task: Task) -> str:
    row = [task.prompt, dict(task.data), dict(task.secret)]
    return json.dumps(row, sort_keys=True, default=str)


def shuffled_split(tasks: Iterable[Task], heldout_share: float) -> dict[Split, list[Task]]:
    """Tasks by split, decided by each one's id, which is a hash of its content; shuffled by it."""
    ordered = sorted(tasks, key=lambda task: derive("task order", task.id))
    border = heldout_share * 2**63
    return {
        "train": [task for task in ordered if derive("split", task.id) >= border],
        "heldout": [task for task in ordered if derive("split", task.id) < border],
    }
