"""Checks that an environment's splits differ by what their tasks are."""

from collections.abc import Sequence

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


def _content(task: Task) -> str:
    return repr(
        [task.prompt, {**task.data}, {**task.secret}]
    )  # not JSON, which has text keys alone
