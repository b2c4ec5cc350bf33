"""Checks that an environment's splits differ by what their tasks are."""

import json
from collections.abc import Sequence
from typing import Any

from turnwise.environments.base import Environment
from turnwise.errors import DataError
from turnwise.types import Task


def check_splits(environment: Environment, train: Sequence[Task], heldout: Sequence[Task]) -> None:
    """Raises DataError when all held-out tasks are training tasks, by what they show, hold and
    expect, whatever their ids: then an evaluation would measure what was learned by heart."""
    if not environment.same_splits and 0 < len(heldout) == shared_tasks(train, heldout):
        raise DataError(
            f"environment {environment.spec.name}: its held-out tasks are training tasks: "
            "tasks('heldout') has to give others than tasks('train')"
        )


def shared_tasks(train: Sequence[Task], heldout: Sequence[Task]) -> int:
    """The number of held-out tasks that are training tasks too, by the same measure."""
    known = {_content(task) for task in train}
    return sum(_content(task) in known for task in heldout)


def plain(value: Any) -> str:
    """A text that is the same for the same data, whatever the order of its keys."""
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except TypeError:  # keys that JSON lacks, or that have no order
        return repr(value)


def _content(task: Task) -> str:
    return plain([task.prompt, {**task.data}, {**task.secret}])
