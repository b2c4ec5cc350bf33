"""Data: tasks of both splits, compared with each other by what they show, hold and expect."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from turnwise.environments.base import Environment
from turnwise.environments.splits import plain
from turnwise.environments.tasksets import SPLITS, Tasks
from turnwise.storage.audits import Finding
from turnwise.types import Task
from turnwise_trust.audit.attempts import succeeded
from turnwise_trust.audit.calls import oracle_of
from turnwise_trust.audit.plays import Script, played, seen
from turnwise_trust.audit.subject import Subject

OVERLAP = 0.01
"""The largest share of held-out tasks that may stand in training."""
DUPLICATES = 0.1
"""The largest share of a split's tasks that may be there a second time."""
NEAR = 0.8
"""The Jaccard index of two prompts' rare n-grams from which on they are near."""
WORDS = 3
"""Words of an n-gram."""
COMMON = 0.01
"""The share of all prompts beyond which an n-gram is a template's, and tells nothing."""
MOST_WORDS = 5_000_000
"""Words of all prompts beyond which near ones are not looked for: their n-grams fill gigabytes."""
TRIED = 4
Gram = tuple[str, ...]

_WORD = re.compile(r"\w+")


def data(subject: Subject) -> Iterator[Finding]:
    """Compare all tasks; of them only what may contradict each other is played."""
    splits = {split: subject.environment.tasks(split) for split in SPLITS}
    yield overlap(subject.environment, splits)
    yield _tasks(subject, splits)


def normalised(text: str) -> str:
    """A text in lower case, its words alone.

    >>> normalised("Who wrote  'Emma'?")
    'who wrote emma'
    """
    return " ".join(_WORD.findall(text.casefold()))


def _shown(task: Task) -> str:
    """The public part of a task: its prompt and its data."""
    return plain([task.prompt, {**task.data}])


def _expected(task: Task) -> str:
    return plain({**task.secret})


def _plainly(task: Task) -> tuple[str, str]:
    """A task's words, and the data that has to be the same to the letter."""
    return normalised(task.prompt), plain({**task.data})


def overlap(environment: Environment, splits: Tasks) -> Finding:
    """Compare the tasks of both splits: to the letter, normalised, and nearly."""
    check = "overlap of train and held-out tasks"
    train, heldout = (splits[split] for split in SPLITS)
    if environment.same_splits:
        return Finding(check, note="declared: same_splits; episodes differ by their seeds alone")
    if not train or not heldout:
        return Finding(check, note=f"{len(train)} training tasks, {len(heldout)} held out")
    exact = _in_both(train, heldout, _shown)
    plain = _in_both(train, heldout, _plainly)
    words = sum(len(task.prompt.split()) for task in (*train, *heldout))
    near = _near(train, heldout) if words <= MOST_WORDS else {}
    told = f"{len(near)} nearly" if words <= MOST_WORDS else "none was held nearly against them"
    found = {**near, **plain, **exact}
    share = len(found) / len(heldout)
    passed = share <= OVERLAP
    first = next(iter({**exact, **plain, **near}.items()), None)
    example = f"; first: {first[0]} is {first[1]}" if first else ""
    return Finding(
        check,
        share,
        bound=OVERLAP,
        passed=passed,
        note=f"of {len(heldout)} held-out tasks {len(exact)} are training tasks to the letter, "
        f"{len(plain)} but for case, spaces and punctuation, {told}{example}",
        remedy="Split by what tasks ask, not by their number or id.",
    )


def _in_both(train: Sequence[Task], heldout: Sequence[Task], key: Any) -> dict[str, str]:
    """Held-out tasks by id, each with a training task that is the same by a key."""
    known = {key(task): task.id for task in train}
    return {task.id: known[key(task)] for task in heldout if key(task) in known}


def _near(train: Sequence[Task], heldout: Sequence[Task]) -> dict[str, str]:
    """Held-out tasks by id, each with a training task that asks nearly the same: with the same
    numbers, data and secret, and nearly the same n-grams but for those of templates. Prompts that
    are alike up to their constants are different tasks."""
    counts = Counter(gram for task in [*train, *heldout] for gram in _grams(task))
    most = max(3, int(COMMON * (len(train) + len(heldout))))

    def rare(task: Task) -> list[Gram]:
        return [gram for gram in _grams(task) if counts[gram] <= most]

    sizes: dict[str, int] = {}
    known: dict[Hashable, dict[Gram, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task in train:
        grams, group = rare(task), known[_constants(task)]
        sizes[task.id] = len(grams)
        for gram in grams:
            group[gram].append(task.id)
    found = {}
    for task in heldout:
        grams, group = rare(task), known[_constants(task)]
        shared = Counter(name for gram in grams for name in group.get(gram, ()))
        for name, both in shared.items():
            if both >= NEAR * (len(grams) + sizes[name] - both):
                found[task.id] = name
                break
    return found


def _grams(task: Task) -> list[Gram]:
    """Its n-grams of words, each once."""
    words = normalised(task.prompt).split()
    return list(
        dict.fromkeys(tuple(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1))
    )


def _constants(task: Task) -> Hashable:
    numbers = tuple(word for word in _WORD.findall(task.prompt) if any(map(str.isdigit, word)))
    return numbers, _plainly(task)[1], _expected(task)


def _tasks(subject: Subject, splits: Tasks) -> Finding:
    """Duplicates, contradictions and empty prompts, in one row."""
    counted = [len(splits[split]) for split in SPLITS]
    note = f"{counted[0]} for training, {counted[1]} held out, {len(subject.tasks)} of them played"
    problems = [*_duplicates(subject, splits), *_contradictions(subject, splits), *_empty(subject)]
    return Finding(
        "the tasks",
        float(sum(counted)),
        passed=not problems,
        note=f"{note}: {'; '.join(problems)}" if problems else note,
        remedy="Mend or remove these tasks.",
    )


def _duplicates(subject: Subject, splits: Tasks) -> Iterator[str]:
    for split, tasks in splits.items():
        again = len(tasks) - len({(_plainly(task), _expected(task)) for task in tasks})
        if again > DUPLICATES * len(tasks) and not subject.environment.same_splits:
            yield f"{again} of the {split} tasks are there a second time"


def _contradictions(subject: Subject, splits: Tasks) -> Iterator[str]:
    """Tasks that show the same and expect something else, where no episode can tell them apart."""
    groups: dict[Hashable, dict[str, Task]] = defaultdict(dict)
    for task in (task for tasks in splits.values() for task in tasks):
        groups[_plainly(task)].setdefault(_expected(task), task)
    pairs = [pair for found in groups.values() for pair in pairwise(found.values())]
    wrong = [pair for pair in pairs[:TRIED] if _contradict(subject, *pair)]
    if wrong:
        one, other = wrong[0]
        yield (
            f"{len(pairs)} pairs of tasks ask the same and expect something else, as {one.id} and "
            f"{other.id}"
        )


def _contradict(subject: Subject, one: Task, other: Task) -> bool:
    """Whether what solves one of them fails in the other, which shows the same all the way."""
    ways = [(task, oracle_of(subject.environment, task)) for task in (one, other)]
    if all(actions is None for _, actions in ways):
        kind = type(subject.environment)
        return kind.reset == Environment.reset and kind.step == Environment.step
    return any(
        actions is not None and _fails_there(subject, Script("oracle", task, actions), there)
        for (task, actions), there in zip(ways, (other, one), strict=True)
    )


def _fails_there(subject: Subject, script: Script, there: Task) -> bool:
    own, its = played(subject, [script, replace(script, task=there)])
    return succeeded(own) and not succeeded(its) and seen(own)[:-1] == seen(its)[:-1]


def _empty(subject: Subject) -> Iterator[str]:
    blank = [one.task.id for one in subject.idle if one.first and not one.prompt.strip()]
    if blank:
        yield f"{len(blank)} of {len(subject.idle)} begin with an empty message, as {blank[0]}"
