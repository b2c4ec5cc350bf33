"""Sets of tasks: made by a function, or read from a file, and split into training and held out.

Both ways split by what a task is, so that no other task moves one of them. A task set also has what
a report says of its data.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from turnwise.environments.records import read_each
from turnwise.errors import ConfigError, DataError
from turnwise.options import Options
from turnwise.ranges import Share
from turnwise.seeds import derive
from turnwise.types import Task

Split = Literal["train", "heldout"]
Tasks = Mapping[Split, Sequence[Task]]
SPLITS: tuple[Split, Split] = ("train", "heldout")
SOLVED = {"noop": 0.0, "oracle": 1.0}
"""Reference scores where doing nothing never succeeds, and the oracle always does."""


@dataclass(frozen=True)
class Draft:
    """A task that might be made. Example: Draft(question, lambda: Task(...))."""

    key: str
    """The content that makes drafts different: of those with the same key the first is made."""
    make: Callable[[], Task | None]
    """Make the task, or None where the draft is not sound; called only if there is room for it."""
    split_key: str = ""
    """The content that decides the split; the key, if it is empty."""


@dataclass(frozen=True)
class TaskFile(Options):
    """The tasks of a file, of which a share is held out; each environment says which format."""

    file: str
    heldout_share: Share = 0.5

    @property
    def path(self) -> Path:
        """The file, with `~` expanded."""
        return Path(self.file).expanduser()


def every(tasks: Tasks) -> Iterator[tuple[Split, Task]]:
    """All tasks with their splits, the training tasks first."""
    return ((split, task) for split in SPLITS for task in tasks[split])


def checked_tasks(found: Any, place: str) -> Sequence[Task]:
    """Return what was found. Raises DataError, after its place, for no sequence of tasks."""
    if isinstance(found, Mapping | str) or not hasattr(found, "__getitem__"):
        raise DataError(f"{place}: {type(found).__name__} instead of a list of Task")
    for number, task in enumerate(found):
        if not isinstance(task, Task):
            raise DataError(
                f"{place}: number {number} is a {type(task).__name__}: write "
                "Task(id, prompt, secret={...})"
            )
    tasks: Sequence[Task] = found
    return tasks


def whole_content(tasks: Tasks) -> str:
    """All that tasks show, hold and expect."""
    rows = ([split, one.prompt, dict(one.data), dict(one.secret)] for split, one in every(tasks))
    return "".join(json.dumps(row, sort_keys=True) for row in rows)


def identities(tasks: Tasks) -> str:
    """The ids of the tasks, which are hashes of their content."""
    return " ".join(task.id for _, task in every(tasks))


@dataclass(frozen=True)
class TaskSet:
    """The tasks of an environment, and what is known of them.

    >>> TaskSet.shuffled([Task("a", "1?"), Task("b", "2?")], 1.0).tasks["train"]
    []
    """

    tasks: Tasks = field(default_factory=dict)
    """All tasks of both splits, in an order that is the same every time."""
    digest: str = ""
    """The sha256 of the tasks, in hexadecimal: a report's data hash."""
    reference_scores: Mapping[str, float] = field(default_factory=dict)
    """See EnvironmentSpec."""
    warnings: Sequence[str] = ()
    """Oddities of the data, in sentences."""

    @classmethod
    def of(
        cls,
        tasks: Tasks,
        reference_scores: Mapping[str, float] = {},
        warnings: Sequence[str] = (),
        content: Callable[[Tasks], str] = whole_content,
    ) -> Self:
        """Tasks that are split already. The digest is of what `content` makes of them."""
        for split in SPLITS:
            checked_tasks(tasks[split], f"the {split} tasks")
        digest = hashlib.sha256(content(tasks).encode()).hexdigest()
        return cls(tasks, digest, reference_scores, warnings)

    @classmethod
    def shuffled(
        cls,
        tasks: Iterable[Task],
        heldout_share: float,
        reference_scores: Mapping[str, float] = {},
        warnings: Sequence[str] = (),
        content: Callable[[Tasks], str] = whole_content,
    ) -> Self:
        """Tasks split by their ids, which are hashes of their content; see `shuffled_split`. Of
        those with the same id the last is kept. `content` is as in `of`."""
        found = checked_tasks(list(tasks), "the tasks")
        split = shuffled_split({task.id: task for task in found}.values(), heldout_share)
        return cls.of(split, reference_scores, warnings, content)

    @classmethod
    def made(
        cls,
        name: str,
        drafts: Iterable[Draft],
        count: int,
        reference_scores: Mapping[str, float] = SOLVED,
        content: Callable[[Tasks], str] = whole_content,
    ) -> Self:
        """The first `count` sound drafts for each split, which a hash of their content decides;
        `name` is the environment's, for messages; `content` is as in `of`. Raises ConfigError where
        there are not so many drafts."""
        tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
        seen: set[str] = set()
        for draft in drafts:
            split = SPLITS[derive("split", draft.split_key or draft.key) % 2]
            if draft.key in seen or len(tasks[split]) == count:
                continue
            task = draft.make()
            if task is None:
                continue
            seen.add(draft.key)
            tasks[split].append(task)
            if all(len(found) == count for found in tasks.values()):
                return cls.of(tasks, reference_scores, content=content)
        found = min(map(len, tasks.values()))
        raise ConfigError(f"{name}: there are only about {found} such tasks: lower count")

    @classmethod
    def read(
        cls,
        source: TaskFile,
        reader: Callable[[Mapping[str, Any], str], Task | str],
        what: str = "records",
        reference_scores: Mapping[str, float] = SOLVED,
        content: Callable[[Tasks], str] = whole_content,
    ) -> Self:
        """The tasks of a file, each once. `reader` makes one of a record and its place, or gives
        the reason to leave it out, of which the set warns, or raises DataError where it is broken;
        `what` names the records in messages; `content` is as in `of`. Raises DataError for a file
        of which nothing is left."""
        read, broken = read_each(source.path, reader)
        tasks, left_out = kept(read, source.path, what)
        told = [*left_out, *broken]
        return cls.shuffled(tasks, source.heldout_share, reference_scores, told, content)


def kept(
    read: Iterable[Task | str], place: Path, what: str = "records"
) -> tuple[list[Task], list[str]]:
    """The tasks among what was read, and sentences on what was left out. DataError without any."""
    found = list(read)
    tasks = [one for one in found if isinstance(one, Task)]
    reasons = Counter(one for one in found if isinstance(one, str))
    told = [f"{count} {what} were left out: {reason}" for reason, count in reasons.items()]
    if not tasks:
        raise DataError(f"{place}: there are no {what} in it{''.join(f'; {one}' for one in told)}")
    return tasks, told


def drafted(draw: Callable[[int], Draft | None], most: int | None = None) -> Iterator[Draft]:
    """The drafts of the numbers 0, 1, ..., at most `most` of them; None stands for no draft."""
    return filter(None, map(draw, itertools.count() if most is None else range(most)))


def shuffled_split(tasks: Iterable[Task], heldout_share: float) -> dict[Split, list[Task]]:
    """Tasks by split, decided by each one's id, which is a hash of its content; shuffled by it."""
    ordered = sorted(tasks, key=lambda task: derive("task order", task.id))
    border = heldout_share * 2**63  # derive gives 63 bits
    return {
        "train": [task for task in ordered if derive("split", task.id) >= border],
        "heldout": [task for task in ordered if derive("split", task.id) < border],
    }
