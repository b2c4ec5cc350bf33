"""Noise of a reward: its variance divided into policy, episode seed, and judging again.

For each task some scripts (policies) are played under several episode seeds, and each episode is
judged several times. The estimates are those of a nested analysis of variance: the variance
between verdicts of one episode is the judge's; that between seeds, less what the judge adds to it,
is of tools, users and the environment; that between policies, less what seeds add, is what a policy
learns from. What seeds add is half the mean squared difference of two episodes of one script, so
each pair of them has its part in it: the simulated user's where what a user said is the first thing
that differs between the two, the environment's where it is anything else, or nothing to be seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

import numpy as np

from turnwise.environments.base import Environment
from turnwise.seeds import derive
from turnwise.storage.audits import Finding
from turnwise.tokens import Source
from turnwise.types import Action, Task, Trajectory
from turnwise_trust.audit.plays import Script, compared, difference, judged, rate, verdict_of
from turnwise_trust.audit.subject import Subject

OBJECTIVE, VARIANCE = "objective: verifier determinism", "low noise: variance of the reward"
POLICIES, SEEDS, VERDICTS = 3, 3, 3
MOST_NOISE = 0.5
"""The largest share of a reward's variance that may be noise."""
RESAMPLES = 1000

Cell = Sequence[Sequence[Trajectory]]
"""One script of a task: its verdicts by seed."""


class Shares(NamedTuple):
    """The division of a reward's variance."""

    policy: float
    seed: float
    judge: float


def noise(subject: Subject) -> Iterator[Finding]:
    """Judge episodes again, and play their actions under other seeds."""
    tasks = compared(subject, POLICIES * SEEDS * VERDICTS)
    cells = [[_cell(subject, one) for one in _policies(subject, task)] for task in tasks]
    yield _objective([episode for task in cells for cell in task for episode in cell])
    yield _variance(subject, cells)
    yield _flakiness(subject, cells)


def _policies(subject: Subject, task: Task) -> list[Script]:
    """The oracle and one that is damaged, where it is known, and random actions."""
    actions = subject.oracle.get(task.id)
    known = [Script("oracle", task, actions), damaged(task, actions)] if actions else []
    randoms = [Script("random", task, subject.random_actions(task, n)) for n in range(POLICIES)]
    return [*known, *randoms][:POLICIES]


def damaged(task: Task, actions: Sequence[Action]) -> Script:
    """Nearly right actions, on which a verifier that looks at parts by chance is undecided: the
    last sign of the answer is another one; without an answer the last action is left out."""
    *others, last = actions
    if not last.answer:
        return Script("damaged", task, others)
    wrong = "7" if last.answer[-1] == "1" else "1"
    return Script("damaged", task, [*others, replace(last, answer=last.answer[:-1] + wrong)])


def _cell(subject: Subject, script: Script) -> Cell:
    seeds = [derive("noise", subject.seed, number) for number in range(SEEDS)]
    return [judged(subject, script, seed, VERDICTS) for seed in seeds]


def _objective(episodes: Cell) -> Finding:
    """The share of episodes that get another verdict when they are judged again."""
    known = [one for one in episodes if any(again.verdict is not None for again in one)]
    pairs = [(one[0].task.id, _again(one)) for one in known]
    changed = [f"task {task}: {said}" for task, said in pairs if said]
    count = len(pairs)
    if not count:
        return Finding(OBJECTIVE, note="no episode got a verdict")
    note = f"{count} episodes, each judged {VERDICTS} times"
    return Finding(
        OBJECTIVE,
        **rate(len(changed), count),
        bound=0.0,
        passed=not changed,
        note=f"{note}: {changed[0]}" if changed else f"{note}, get the same verdict each time",
        remedy="Have verify() change nothing, and draw nothing that is not derived from the task.",
    )


def _again(verdicts: Sequence[Trajectory]) -> str:
    first, *others = (
        [{"outcome": one.outcome.value, **verdict_of(one.verdict)}] for one in verdicts
    )
    return next(filter(None, (difference(first, other) for other in others)), "")


def _variance(subject: Subject, cells: Sequence[Sequence[Cell]]) -> Finding:
    complete = [task for task in cells if _graded(task)]
    rewards = np.array([[[_rewards(one) for one in cell] for cell in task] for task in complete])
    if not len(rewards):
        return Finding(VARIANCE, note="not divided: no task had all its episodes graded")
    if rewards.var() == 0:
        return _constant(subject, len(rewards))
    shares = divided(rewards)
    low, high = _interval(rewards)
    share = shares.seed + shares.judge
    user = _users_part([cell for task in complete for cell in task])
    least = share if low is None else low
    passed = None if subject.environment.same_splits else least <= MOST_NOISE
    return Finding(
        VARIANCE,
        share,
        low,
        high,
        MOST_NOISE,
        passed,
        f"share of it within {len(rewards)} tasks that is noise: policy {shares.policy:.2f}, tools "
        f"and environment (episode seed) {shares.seed * (1 - (user or 0)):.2f}, judge "
        f"{shares.judge:.2f}, "
        + ("no simulated user" if user is None else f"simulated user {shares.seed * user:.2f}"),
        remedy="Take luck out of the reward, or declare it: same_splits = True.",
    )


def _constant(subject: Subject, count: int) -> Finding:
    known = bool(subject.oracle)
    return Finding(
        VARIANCE,
        0.0,
        passed=False if known else None,
        note=f"all episodes of {count} tasks earn the same, whatever is done"
        + ("" if known else "; no oracle says what would earn more"),
        remedy="Have verify() tell the oracle's episodes from random ones.",
    )


def _graded(task: Sequence[Cell]) -> bool:
    return all(one.reward is not None for cell in task for episode in cell for one in episode)


def _rewards(episode: Sequence[Trajectory]) -> list[float]:
    return [one.reward or 0.0 for one in episode]


def _users_part(cells: Sequence[Cell]) -> float | None:
    """The part of the variance between seeds that begins with a simulated user; None where no user
    replies in any episode."""
    shown = [[_shown(episode[0]) for episode in cell] for cell in cells]
    if not any(source == Source.USER for cell in shown for one in cell for source, _ in one[1:]):
        return None
    begun_by_user = total = 0.0
    for cell, seen in zip(cells, shown, strict=True):
        for one, other in combinations(range(len(cell)), 2):
            part = (fmean(_rewards(cell[one])) - fmean(_rewards(cell[other]))) ** 2
            total += part
            begun_by_user += part * _differ_by_user(seen[one], seen[other])
    return begun_by_user / total if total else 0.0


def _shown(episode: Trajectory) -> list[tuple[Source | None, object]]:
    """The first message, then of each turn the results of its calls and the reply, with whose
    words they are."""
    first, shown = episode.first, list[tuple[Source | None, object]]()
    shown.append((None, "") if first is None else (first.source, first.content))
    for step in (turn.step for turn in episode.turns if turn.step is not None):
        shown.append((Source.TOOL, [(one.content, one.ok) for one in step.results]))
        reply = step.observation
        shown.append((None, "") if reply is None else (reply.source, reply.content))
    return shown


def _differ_by_user(
    one: Sequence[tuple[Source | None, object]], other: Sequence[tuple[Source | None, object]]
) -> bool:
    """Whether the first thing that differs is what a user said, or that one said nothing more."""
    pairs = zip(one, other, strict=False)
    first = next(((left, right) for left, right in pairs if left != right), ())
    return any(source == Source.USER for source, _ in first)


def divided(rewards: np.ndarray) -> Shares:
    """Divide the variance of rewards, float[tasks, policies, seeds, verdicts], within tasks.

    >>> divided(np.array([[[[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2]]))
    Shares(policy=1.0, seed=0.0, judge=0.0)
    """
    return Shares(*(float(one) for one in _shares(_components(rewards).sum(axis=1))))


def _components(rewards: np.ndarray) -> np.ndarray:
    """float[3, tasks]: the variance of policy, seed and judge in each task, which may be below 0.
    Source: Searle, Casella and McCulloch 1992, Variance Components, chapter 4 (balanced data)."""
    _, _, seeds, verdicts = rewards.shape
    judge = rewards.var(axis=3, ddof=1).mean(axis=(1, 2))
    episodes = rewards.mean(axis=3)
    between_seeds = episodes.var(axis=2, ddof=1).mean(axis=1)
    policy = episodes.mean(axis=2).var(axis=1, ddof=1) - between_seeds / seeds
    return np.stack([policy, between_seeds - judge / verdicts, judge])


def _shares(components: np.ndarray) -> np.ndarray:
    kept = components.clip(0)
    total = kept.sum(axis=0)
    shares: np.ndarray = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
    return shares


def _interval(rewards: np.ndarray) -> tuple[float | None, float | None]:
    """95% of the share of noise over tasks drawn again; none of a single task."""
    components = _components(rewards)
    count = components.shape[1]
    if count < 2:
        return None, None
    drawn = np.random.default_rng(derive("audit", "noise")).integers(count, size=(RESAMPLES, count))
    shares = _shares(components[:, drawn].sum(axis=2))
    low, high = np.quantile(shares[1] + shares[2], [0.025, 0.975])
    return float(low), float(high)


def _flakiness(subject: Subject, cells: Sequence[Sequence[Cell]]) -> Finding:
    """The share of scripts that succeed under one seed and fail under another, beside what the
    success that is declared of the oracle leaves to luck. That success is judged in `floors.py`."""
    endings = [found for task in cells for cell in task if (found := _endings(cell))]
    flaky = sum(len(found) > 1 for found in endings)
    return Finding(
        "flakiness",
        **rate(flaky, len(endings)),
        note=f"share of {len(endings)} scripts that succeed under one of {SEEDS} seeds and fail "
        f"under another; declared: {_declared(subject.environment)}",
    )


def _declared(environment: Environment) -> str:
    """The luck that an environment declares, in words: success of the oracle in a share p makes
    1 - p^n - (1 - p)^n of its tasks flaky under n seeds, or fewer where tasks differ."""
    if environment.same_splits:
        return "luck tells its episodes apart (same_splits)"
    share = environment.spec.reference_scores.get("oracle")
    if share is None:
        return "nothing"
    most = 1 - share**SEEDS - (1 - share) ** SEEDS
    return f"the oracle succeeds in {share:.0%}, so {most:.0%} of its scripts at most"


def _endings(cell: Cell) -> set[bool]:
    verdicts = [episode[0].verdict for episode in cell]
    return {one.success for one in verdicts if one is not None}
