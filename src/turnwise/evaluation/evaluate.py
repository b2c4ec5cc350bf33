"""Held-out evaluation: distinct tasks, one episode each, with intervals and counts of outcomes.

Not here: how episodes are played (rollout) and how a report is laid out (report.py).
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from turnwise.evaluation.intervals import wilson
from turnwise.rollout.runner import RolloutRunner
from turnwise.seeds import derive
from turnwise.types import Group, Task, Trajectory


def choose_tasks(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """`count` distinct tasks, the same ones for the same seed whatever else happens."""
    chosen = list(tasks)
    random.Random(derive(seed, "evaluation")).shuffle(chosen)
    return chosen[:count]


async def evaluate_policy(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    seed: int,
    label: str,
) -> tuple[list[Group], dict[str, Any]]:
    """Play one episode on each task; returns the trajectories and their summary."""
    groups = await runner.collect(tasks, 1, seed, label)
    return groups, summarise([group.trajectories[0] for group in groups])


def summarise(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """The figures of one evaluation, as reports have them.

    `success`, `low`, `high` (95% Wilson), `n` and `reward`, the mean (None where no episode has a
    grade), are of graded episodes only; `ungraded` says how many were not,
    `success_if_ungraded_failed` what the rate would be if all of those had failed.
    `breakdown` has the same numbers and the mean number of tool calls for each value of each label
    in `Task.info` (hop counts, for example).
    """
    summary = _rate(trajectories)
    outcomes = Counter(str(trajectory.outcome) for trajectory in trajectories)
    return summary | {
        "ungraded": len(trajectories) - summary["n"],
        "success_if_ungraded_failed": summary["successes"] / max(1, len(trajectories)),
        "outcomes": dict(sorted(outcomes.items())),
        "turns": fmean([len(t.turns) for t in trajectories]) if trajectories else 0.0,
        "tokens_sampled": fmean([int(t.tokens.mask.sum()) for t in trajectories] or [0]),
        "breakdown": _breakdown(trajectories),
    }


def best_constant_answer(tasks: Sequence[Task]) -> float | None:
    """Success of always giving the most frequent accepted answer: a score that needs no model.

    None unless the tasks' secrets list their `answers`.
    """
    accepted = [task.secret.get("answers") for task in tasks]
    if not tasks or not all(isinstance(answers, list | tuple) for answers in accepted):
        return None
    counts = Counter(answer for answers in accepted for answer in {str(a) for a in answers or ()})
    return max(counts.values(), default=0) / len(tasks)


def _rate(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    verdicts = [t.verdict for t in trajectories if t.outcome.graded and t.verdict is not None]
    successes = sum(verdict.success for verdict in verdicts)
    low, high = wilson(successes, len(verdicts))
    return {
        "success": successes / max(1, len(verdicts)),
        "low": low,
        "high": high,
        "n": len(verdicts),
        "successes": successes,
        "reward": fmean(verdict.reward for verdict in verdicts) if verdicts else None,
        "tool_calls": fmean([t.tool_calls for t in trajectories] or [0]),
    }


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
