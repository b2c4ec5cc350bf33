"""Rewards: whether they are as declared, how fine they are, and how often they are wrong on plain
right and wrong answers. What else is paid is what attacks ask; `floors.py` judges the oracle."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from turnwise.storage.audits import Finding
from turnwise.types import Task, Trajectory
from turnwise_trust.audit.attempts import graded, in_time, succeeded
from turnwise_trust.audit.plays import Script, compared, played, rate
from turnwise_trust.audit.scripts import plain
from turnwise_trust.audit.subject import OutOfTime, Subject

CUTS = 4
"""Lengths to which an oracle's way is cut, the whole among them, at most."""
EPSILON = 1e-9


def rewards(subject: Subject) -> Iterator[Finding]:
    """Look at the rewards of oracle, random, idle, wrong and unfinished episodes."""
    yield _well_formed(subject)
    yield _continuous(subject)
    yield from _errors(subject)


def _well_formed(subject: Subject) -> Finding:
    known = [*subject.of_oracle, *subject.of_random, *subject.idle]
    if not known:
        raise OutOfTime
    wrong = [
        f"task {one.task.id}: {said}" for one in known for said in _malformed(subject, one)[:1]
    ]
    earned = [one.reward for one in known if one.reward is not None]
    count = len(known)
    note = f"of {count} episodes of the oracle, at random and idle"
    return Finding(
        "well-formed reward",
        **rate(len(wrong), count),
        bound=0.0,
        passed=not wrong,
        note=f"{len(wrong)} {note} are not: {wrong[0]}"
        if wrong
        else f"{note} each gets a verdict whose numbers are in the ranges that are declared: "
        f"rewards {min(earned):g} to {max(earned):g}",
        remedy="Mend what raises, or give the ranges in the environment's facts: rewards, parts.",
    )


def _malformed(subject: Subject, episode: Trajectory) -> list[str]:
    """Faults of its verdict, each as a sentence's end."""
    verdict, spec = episode.verdict, subject.environment.spec
    if verdict is None:
        return [f"{episode.outcome.value}: {episode.problem}"]
    found = []
    if spec.rewards == "shares" and not 0 <= verdict.reward <= 1:
        found.append(f"reward {verdict.reward:g} outside of 0 to 1")
    turns = episode.turn_rewards
    stated = subject.environment.facts is not None  # else nothing is declared at all
    if stated and not spec.turn_rewards and turns is not None and turns.any():
        found.append("its turns have rewards, and turn_rewards is not declared")
    for name, part in spec.parts.items():
        numbers = (
            [verdict.parts[name]] if name in verdict.parts else verdict.turn_parts.get(name, [])
        )
        outside = [one for one in numbers if not part.low - EPSILON <= one <= part.high + EPSILON]
        if outside:
            found.append(f"part {name} {outside[0]:g} outside of {part.low:g} to {part.high:g}")
    return found


def _continuous(subject: Subject) -> Finding:
    """How much partial credit there is, which a policy that cannot do the task yet learns from."""
    ways = [_way(subject, task) for task in compared(subject, CUTS) if _length(subject, task) > 1]
    cut = [reward for way in ways for reward in way[:-1]]
    partial = [r for way in ways for r in way[:-1] if EPSILON < r < way[-1] - EPSILON]
    falls = sum(any(b < a - EPSILON for a, b in pairwise(way)) for way in ways)
    known = [one.reward for one in [*subject.of_oracle, *subject.of_random, *subject.idle]]
    values = {round(one, 9) for one in [*known, *cut] if one is not None}
    said = f"{len(values)} different rewards of {len(known) + len(cut)} episodes"
    if not cut:
        return Finding("continuous: partial credit", note=f"{said}; no oracle's way has two steps")
    return Finding(
        "continuous: partial credit",
        **rate(len(partial), len(cut)),
        note=f"share of {len(cut)} unfinished oracle's episodes that earn something, and less than "
        f"the whole; {said}; on the oracle's way the reward falls in {falls} of {len(ways)} tasks",
    )


def _errors(subject: Subject) -> Iterator[Finding]:
    """The verifier's rates of error: wrong episodes that succeed, and the oracle's that do not."""
    chosen = list(_wrong_answers(subject))
    others, idle = list(graded(played(subject, chosen))), list(graded(subject.idle_at_work))
    passing = sum(map(succeeded, [*idle, *others]))
    yield Finding(
        "low noise: false positives",
        **rate(passing, len(idle) + len(others)),
        note=f"share of {len(idle)} episodes without an answer, and of {len(others)} with the "
        "right answer of another task, that succeed",
    )
    known = list(in_time(subject.of_oracle))
    refused = len(known) - sum(map(succeeded, known))
    note = f"share of {len(known)} episodes of the oracle that do not succeed"
    yield Finding("low noise: false negatives", **rate(refused, len(known)), note=note)


def _wrong_answers(subject: Subject) -> Iterator[Script]:
    """For each task what the oracle does, but with the answer of the next: where that is another
    text."""
    tasks = [task for task in compared(subject, 1) if task.id in subject.answers]
    for task, other in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
        wrong = subject.answers[other.id]
        if plain(wrong) != plain(subject.answers[task.id]):
            *before, last = subject.oracle[task.id]
            yield Script("wrong", task, [*before, replace(last, text=wrong, answer=wrong)])


def _length(subject: Subject, task: Task) -> int:
    return len(subject.oracle.get(task.id, ()))


def _way(subject: Subject, task: Task) -> list[float]:
    """The rewards of an oracle's episodes that stop after some steps, the last after all."""
    actions = subject.oracle[task.id]
    places = sorted({max(1, len(actions) * part // CUTS) for part in range(1, CUTS + 1)})
    chosen = [Script("oracle", task, actions[:place]) for place in places]
    return [one.reward for one in played(subject, chosen) if one.reward is not None]
