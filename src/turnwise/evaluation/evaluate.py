"""Held-out evaluation: distinct tasks, with intervals, counts of outcomes, and sentences on what
the figures cannot say."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

import numpy as np

from turnwise.config import EvaluationConfig
from turnwise.evaluation.effort import Oracle, cost, effort
from turnwise.evaluation.intervals import (
    Interval,
    best_of_ks,
    clustered,
    powers_of_two,
    reliability,
    wilson,
)
from turnwise.rollout.runner import Runner, members_of
from turnwise.types import Group, Task, Trajectory


async def evaluate_policy(
    runner: Runner, tasks: Sequence[Task], config: EvaluationConfig, label: str
) -> tuple[list[Group], dict[str, Any]]:
    """Play the tasks as the configuration says, but for its temperature, which is the runner's;
    returns the trajectories and their summary, with the wall-clock `seconds` that it took, an
    episode's `latency` (`median` and `p95`, in seconds from its begin to its verdict, with the
    others beside it), and the `cost` where there are prices."""
    start = time.monotonic()
    groups = await runner.collect(tasks, config.episodes_per_task, config.seed, label)
    seconds = round(time.monotonic() - start, 1)
    played = members_of(groups)
    oracle = runner.environment.oracle
    summary = summarise(played, config.k, oracle, config.best_of)
    summary |= {"seconds": seconds, "latency": _latency(played)}
    if config.prices is not None:
        summary["cost"] = cost(played, seconds, config.prices)
    return groups, summary


def _latency(played: Sequence[Trajectory]) -> dict[str, float]:
    median, p95 = np.percentile([one.seconds for one in played] or [0.0], [50, 95]).tolist()
    return {"median": round(median, 3), "p95": round(p95, 3)}


def summarise(
    trajectories: Sequence[Trajectory],
    ks: Sequence[int] = (),
    oracle: Oracle | None = None,
    best_of: str = "",
) -> dict[str, Any]:
    """The figures of one evaluation, as reports have them.

    `success`, `low`, `high` (95%: Wilson's interval, clustered by task where a task has several
    episodes), `n` and `reward`, the mean (None where no episode has a grade), are of graded
    episodes only; `tasks` says of how many tasks these are, `ungraded` how many episodes were not,
    `success_if_ungraded_failed` what the rate would be if all of those had failed.
    `breakdown` has the same numbers and the mean number of tool calls for each value of each label
    in `Task.info` (hop counts, for example). `parts` has what verdicts report: see `part_means`.
    `pass@k` and `pass^k` are there where a task has several episodes: see `reliability`; without
    `ks` the powers of two. With `best_of`, the name of a part of the verdict, so are
    `best_by`, that name, and `best@k`, success of the episode of k in which the part is highest,
    with entries as those of pass@k; a part of turns counts by its sum. `cautions` are sentences on
    what the figures cannot say. For `tokens_per_success`, `calls`, `without_evidence` and `budgets`
    see `effort.py`.
    """
    summary = _rate(trajectories)
    outcomes = Counter(str(trajectory.outcome) for trajectory in trajectories)
    return summary | {
        "ungraded": len(trajectories) - summary["n"],
        "success_if_ungraded_failed": summary["successes"] / max(1, len(trajectories)),
        "outcomes": dict(sorted(outcomes.items())),
        "turns": fmean([len(t.turns) for t in trajectories]) if trajectories else 0.0,
        "tokens_sampled": fmean([int(t.tokens.mask.sum()) for t in trajectories] or [0]),
        "parts": part_means(trajectories),
        **_reliability(trajectories, ks, best_of),
        **effort(trajectories, oracle),
        "cautions": cautions(trajectories),
        "breakdown": _breakdown(trajectories),
    }


def successes_by_task(trajectories: Sequence[Trajectory]) -> dict[str, tuple[int, int]]:
    """Graded episodes and successes of each task, those of none included."""
    counts: dict[str, tuple[int, int]] = {}
    for trajectory in trajectories:
        count, successes = counts.get(trajectory.task.id, (0, 0))
        graded, verdict = trajectory.outcome.graded, trajectory.verdict
        if graded and verdict is not None:
            count, successes = count + 1, successes + verdict.success
        counts[trajectory.task.id] = count, successes
    return counts


def part_means(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, float]]:
    """The mean over graded episodes of each number that their verdicts report, costs and the
    turns' rewards (`turn rewards`) included; `n` says of how many episodes. A number of turns
    counts by its sum over an episode."""
    found: dict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        verdict, rewards = trajectory.verdict, trajectory.turn_rewards
        if not trajectory.outcome.graded or verdict is None:
            continue
        for name, number in verdict.parts.items():
            found[name].append(number)
        for name, numbers in verdict.turn_parts.items():
            found[f"{name}, all turns"].append(math.fsum(numbers))
        if rewards is not None:
            found["turn rewards"].append(float(rewards.sum()))
    return {
        name: {"mean": fmean(values), "n": len(values)} for name, values in sorted(found.items())
    }


def best_constant_answer(tasks: Sequence[Task]) -> float | None:
    """Success of always giving the most frequent accepted answer: a score that needs no model. None
    unless the tasks' secrets list their `answers`."""
    accepted = [task.secret.get("answers") for task in tasks]
    if not tasks or not all(isinstance(answers, list | tuple) for answers in accepted):
        return None
    # A set of each task's: an answer that is listed twice, as 7 and "7", counts once.
    counts = Counter(answer for answers in accepted for answer in {str(a) for a in answers or ()})
    return max(counts.values(), default=0) / len(tasks)


def _rate(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    counts = [pair for pair in successes_by_task(trajectories).values() if pair[0]]
    number, successes = sum(count for count, _ in counts), sum(one for _, one in counts)
    rewards = [t.outcome_reward for t in trajectories if t.outcome_reward is not None]
    low, high = _interval(counts)
    return {
        "success": successes / max(1, number),
        "low": low,
        "high": high,
        "n": number,
        "tasks": len(counts),
        "successes": successes,
        "reward": fmean(rewards) if rewards else None,
        "tool_calls": fmean([t.tool_calls for t in trajectories] or [0]),
    }


def _interval(counts: Sequence[tuple[int, int]]) -> Interval:
    """The interval of the mean success, given episodes and successes of each task."""
    if all(count == 1 for count, _ in counts):
        return wilson(sum(successes for _, successes in counts), len(counts))
    return clustered([successes for _, successes in counts], [count for count, _ in counts])


def _reliability(
    trajectories: Sequence[Trajectory], ks: Sequence[int], best_of: str
) -> dict[str, Any]:
    played = Counter(trajectory.task.id for trajectory in trajectories)
    most = max(played.values(), default=0)
    if most < 2:
        return {}
    ks = ks or powers_of_two(most)
    found = reliability(successes_by_task(trajectories), ks)
    if best_of:
        scored = _scored_by_task(trajectories, best_of)
        found |= {"best_by": best_of, "best@k": best_of_ks(scored, ks)}
    return found


def _scored_by_task(
    trajectories: Sequence[Trajectory], part: str
) -> dict[str, list[tuple[float, bool]]]:
    """The number of a part and the success of each graded episode that has the part."""
    scored: dict[str, list[tuple[float, bool]]] = {t.task.id: [] for t in trajectories}
    for trajectory in trajectories:
        verdict = trajectory.verdict
        if not trajectory.outcome.graded or verdict is None:
            continue
        if part in verdict.parts:
            scored[trajectory.task.id].append((verdict.parts[part], verdict.success))
        elif part in verdict.turn_parts:
            scored[trajectory.task.id].append((sum(verdict.turn_parts[part]), verdict.success))
    return scored


def _breakdown(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, list[Trajectory]]] = defaultdict(lambda: defaultdict(list))
    for trajectory in trajectories:
        for label, value in trajectory.task.info.items():
            if isinstance(value, str | int | bool):
                parts[label][str(value)].append(trajectory)
    return {
        label: {value: _rate(members) for value, members in sorted(values.items())}
        for label, values in parts.items()
    }


FEWEST = 6
"""Tasks in which two policies must differ, all in favour of the same one, before an exact test at
5% tells them apart: 2 * 0.5 ** 6 = 0.03."""


def cautions(trajectories: Sequence[Trajectory]) -> list[str]:
    """List them: success at floor or ceiling, episodes of a task that are all the same."""
    return [*_saturation(trajectories), *_repetition(trajectories)]


def _saturation(trajectories: Sequence[Trajectory]) -> list[str]:
    """Say where not even a perfect policy, or one that always fails, could be told from this one
    on these tasks: there are too few, or too few of them fail or succeed."""
    tasks = [pair for pair in successes_by_task(trajectories).values() if pair[0]]
    failed = sum(successes < count for count, successes in tasks)
    solved = sum(successes > 0 for _, successes in tasks)
    # With one episode a task, one of the sentences below would hold for any policy on so few.
    if 0 < len(tasks) < 2 * FEWEST:
        return [
            f"too few tasks: {len(tasks)} tell hardly any policy from this one; evaluate on "
            f"{2 * FEWEST} or more"
        ]
    found = []
    if tasks and failed < FEWEST:
        found.append(
            f"at the ceiling: {failed} of {len(tasks)} tasks failed, so these tasks cannot "
            "tell a better policy from this one; evaluate on more or harder ones"
        )
    if tasks and solved < FEWEST:
        found.append(
            f"at the floor: {solved} of {len(tasks)} tasks succeeded, so these tasks cannot "
            "tell a worse policy from this one; evaluate on more or easier ones"
        )
    return found


def _repetition(trajectories: Sequence[Trajectory]) -> list[str]:
    """Say where several episodes of a task are one episode, played again."""
    ordered = sorted(trajectories, key=lambda t: t.task.id)
    written = [
        [member.tokens.ids.tobytes() for member in members]
        for _, members in groupby(ordered, key=lambda t: t.task.id)
    ]
    several = [texts for texts in written if len(texts) > 1]
    if not several or any(len(set(texts)) > 1 for texts in several):
        return []
    return [
        "the episodes of each task are the same, token by token: more than one says nothing new; "
        "set evaluation.temperature above 0"
    ]
