"""Single steps: rewards that repetition farms, and steps that success can do without."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from turnwise.seeds import derive
from turnwise.storage.audits import Finding
from turnwise.types import Task, Trajectory
from turnwise_environments.choosing import spread
from turnwise_trust.audit.attempts import Script, described, graded, scripted, succeeded
from turnwise_trust.audit.floors import IDLE
from turnwise_trust.audit.plays import rate
from turnwise_trust.audit.subject import Subject

TIMES, MANY = (4, 8, 16), 64
"""How often a step is repeated: of a reward without bound each doubling adds twice as much. What
still grows then is repeated MANY times, which has to pay more than an honest episode."""
GROWTH = 1.5
"""The least growth of what doubling adds, by which a reward is without bound."""
TASKS, PLACES = 8, 3
"""Tasks that are played, and steps of each that are repeated or left out."""
SECONDS = 10.0
"""Seconds of repeating: what was not repeated then is left out."""


def farmable(subject: Subject) -> Iterator[Finding]:
    """Repeat steps, and pairs of them, of the oracle or else of a random agent: no reward may grow
    with every repetition above what the oracle has, nor where nothing succeeds at all."""
    subject.begin()
    with subject.within(SECONDS):
        farmed = [_farmed(subject, task) for task in spread(subject.tasks, TASKS)]
    known = [one for one in farmed if one is not None]
    if not known:
        return
    found = [one for one in known if one]
    share = rate(len(found), len(known))
    yield Finding(
        "a repeated step",
        **share,
        bound=IDLE,
        passed=share["low"] <= IDLE,
        note=f"share of {len(known)} tasks in which the reward grows with each of {MANY} "
        "repetitions of a step, above the oracle's",
        replay=found[0] if found else "",
        remedy="Reward a step once, or take back what is undone.",
    )


def _farmed(subject: Subject, task: Task) -> str | None:
    """How the reward of a task is farmed; empty where it is not, None where none can be known."""
    script = tuple(subject.oracle.get(task.id, ()))
    honest = _judged(subject, task, script) if script else None
    if script and (honest is None or not succeeded(honest)):
        return None
    known = False
    for before, segment, after in _segments(script or tuple(subject.random_actions(task)), task):
        totals: list[float] = []
        for times in (*TIMES, MANY):
            last = _judged(subject, task, before + segment * times + after)
            if last is None or not _grows([*totals, last.reward or 0.0]):
                break
            totals.append(last.reward or 0.0)
        known = known or last is not None
        if len(totals) > len(TIMES) and last is not None and _is_too_much(last, honest):
            said = f"{described(segment)}, {MANY} times: a reward of {totals[-1]:g}"
            return f"task {task.id}, {said}"
    return "" if known else None


def _judged(subject: Subject, task: Task, script: Script) -> Trajectory | None:
    return next(graded(subject.play(scripted(script), [task])), None)


def _segments(script: Script, task: Task) -> Iterator[tuple[Script, Script, Script]]:
    """A few steps of a script, and pairs of them, each once: with what comes before, and after, in
    which they stand once more."""
    kept: set[str] = set()
    for place in _places(script, task):
        for length in (1, 2):
            segment = script[place : place + length]
            acts = all(action.answer is None for action in segment)
            if acts and described(segment) not in kept:
                kept.add(described(segment))
                yield script[:place], segment, script[place:]


def _grows(totals: Sequence[float]) -> bool:
    """Whether what each repetition adds has not fallen: true of a single total."""
    added = [second - first for first, second in pairwise(totals)]
    return all(one > 1e-9 for one in added) and all(
        second >= GROWTH * first for first, second in pairwise(added)
    )


def _is_too_much(last: Trajectory, honest: Trajectory | None) -> bool:
    if honest is None:
        return not succeeded(last)
    return (last.reward or 0.0) > (honest.reward or 0.0)


def _places(script: Script, task: Task) -> list[int]:
    """A few steps of a script, in order."""
    stream = random.Random(derive("steps", task.id))
    return sorted(stream.sample(range(len(script)), min(PLACES, len(script))))


def _without_one(script: Script, task: Task) -> list[Script]:
    return [script[:place] + script[place + 1 :] for place in _places(script[:-1], task)]


SHORTER: Mapping[str, Callable[[Script, Task], list[Script]]] = {
    "a step left out": _without_one,
    "the last step alone": lambda script, task: [script[-1:]],
    "the first half of the steps": lambda script, task: [script[: len(script) // 2]],
}
"""Ways to shorten an oracle's script."""


def unneeded(subject: Subject) -> Iterator[Finding]:
    """Measure how often the oracle succeeds without some of its steps: success that needs no
    evidence. No fault by itself, since an answer may be right without it."""
    subject.begin()
    known = [task for task in subject.tasks if len(subject.oracle.get(task.id, ())) > 1]
    for name, shorten in SHORTER.items():
        played = [
            (script, one)
            for task in spread(known, TASKS)
            for script in shorten(tuple(subject.oracle[task.id]), task)
            for one in graded(subject.play(scripted(script), [task]))
        ]
        found = [(script, one) for script, one in played if succeeded(one)]
        if played:
            yield Finding(
                name,
                **rate(len(found), len(played)),
                note=f"share of {len(played)} shortened scripts of the oracle that succeed as well",
                replay=f"task {found[0][1].task.id}: {described(found[0][0])}" if found else "",
            )
