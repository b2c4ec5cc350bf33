"""The effort behind success: its cost, success under smaller budgets, wasted calls, lucky guesses.

All of it is measured on episodes as they were played.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from turnwise.config import PriceConfig
from turnwise.errors import InfrastructureError, MissingExtraError, NotSupportedError
from turnwise.rewards.answer import states
from turnwise.types import Action, Task, Trajectory

Oracle = Callable[[Task], Sequence[Action]]
"""See `Environment.oracle`."""

ORACLE_ERRORS = (
    NotSupportedError,
    InfrastructureError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""An oracle's errors where it has no way for a task, and plain code's of an unexpected one."""
POINTS = 20
"""Points of a budget curve, at most."""


def effort(trajectories: Sequence[Trajectory], oracle: Oracle | None) -> dict[str, Any]:
    """The figures of this module for the episodes of one evaluation, as reports have them."""
    succeeded = successes(trajectories)
    sampled = sum(int(trajectory.tokens.mask.sum()) for trajectory in trajectories)
    return {
        "tokens_per_success": sampled / len(succeeded) if succeeded else None,
        "calls": calls(succeeded, oracle),
        "without_evidence": without_evidence(succeeded),
        "budgets": budgets(trajectories),
    }


def cost(trajectories: Sequence[Trajectory], seconds: float, prices: PriceConfig) -> dict[str, Any]:
    """The cost of an evaluation of so many wall-clock seconds, in the prices' currency: `total`,
    and `per_success`, all of it by the successes, None where there are none."""
    sampled = sum(int(trajectory.tokens.mask.sum()) for trajectory in trajectories)
    read = sum(len(trajectory.tokens) for trajectory in trajectories) - sampled
    total = (
        prices.hour * seconds / 3600
        + (prices.million_sampled_tokens * sampled + prices.million_read_tokens * read) / 1e6
        + prices.tool_call * sum(trajectory.tool_calls for trajectory in trajectories)
    )
    succeeded = len(successes(trajectories))
    each = total / succeeded if succeeded else None
    return {"total": total, "per_success": each}


def successes(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The graded episodes that succeeded."""
    return [t for t in trajectories if t.outcome.graded and t.verdict and t.verdict.success]


def budgets(trajectories: Sequence[Trajectory]) -> dict[str, list[tuple[int, float]]]:
    """Success as a function of the tool calls, turns and sampled tokens that are allowed.

    Each curve is a list of (budget, success): the share of graded episodes that succeeded with at
    most so much, in at most `POINTS` steps. That is the policy as it is, cut off; one that knew of
    a smaller budget might do better.
    """
    graded = [t for t in trajectories if t.outcome.graded and t.verdict is not None]
    succeeded = successes(graded)
    used = {
        "tool_calls": [trajectory.tool_calls for trajectory in succeeded],
        "turns": [len(trajectory.turns) for trajectory in succeeded],
        "tokens": [int(trajectory.tokens.mask.sum()) for trajectory in succeeded],
    }
    return {name: _curve(amounts, len(graded)) for name, amounts in used.items()}


def calls(succeeded: Sequence[Trajectory], oracle: Oracle | None) -> dict[str, float | None]:
    """Tool calls of successful episodes: `made` and `needed`, means, the latter by the oracle of
    the environment; `beyond_need`, the mean excess of an episode; `repeated`, the share of calls
    that the episode had made before with the same arguments, and that brought the same reply. None
    where nothing was measured."""
    made = [sum(len(turn.action.calls) for turn in one.turns) for one in succeeded]
    total, distinct = sum(made), sum(len(set(_exchanges(one))) for one in succeeded)
    needs = _needs([trajectory.task for trajectory in succeeded], oracle)
    known = [(one, need) for one, need in zip(made, needs, strict=True) if need is not None]
    return {
        "made": total / len(made) if made else None,
        "needed": fmean(need for _, need in known) if known else None,
        "beyond_need": fmean(max(0, one - need) for one, need in known) if known else None,
        "repeated": 1 - distinct / total if total else None,
    }


def without_evidence(succeeded: Sequence[Trajectory]) -> dict[str, int] | None:
    """Successes in which no observation held an accepted answer: `successes` that were looked at,
    and `without` it. Such an answer was known, derived or guessed. None where no task has one."""
    found = []
    for trajectory in succeeded:
        answers = trajectory.task.secret.get("answers")
        if isinstance(answers, list | tuple):
            accepted = [str(answer) for answer in answers]
            found.append(not any(states(text, accepted) for text in trajectory.observed))
    return {"successes": len(found), "without": sum(found)} if found else None


def plot_budgets(evaluations: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Draw the budget curves of evaluations, a panel for each kind of budget. Raises
    MissingExtraError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    kinds = ("tool_calls", "turns", "tokens")
    figure = Figure(figsize=(12, 4), layout="constrained")
    panels = figure.subplots(1, len(kinds), sharey=True)
    for panel, kind in zip(panels, kinds, strict=True):
        curves = {name: summary["budgets"][kind] for name, summary in evaluations.items()}
        most = max((curve[-1][0] for curve in curves.values() if curve), default=1)
        for name, curve in curves.items():
            highest = curve[-1][1] if curve else 0.0
            # From nothing allowed, to as far as the longest of all curves goes.
            budget, success = zip((0, 0.0), *curve, (most, highest), strict=True)
            panel.step(budget, success, where="post", label=name)
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set(xlabel=f"{kind.replace('_', ' ')} allowed", ylim=(0, 1))
        panel.set_xlim(left=0)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("success")
    panels[0].legend(loc="upper left")
    figure.savefig(file, dpi=130)


def _curve(amounts: Sequence[int], episodes: int) -> list[tuple[int, float]]:
    """The steps of the share of all episodes that succeeded with at most an amount."""
    steps = np.unique(np.array(amounts, np.int64))
    if len(steps) > POINTS:
        steps = steps[np.linspace(0, len(steps) - 1, POINTS).round().astype(int)]
    reached = np.searchsorted(np.sort(amounts), steps, side="right")
    return [(int(step), int(count) / episodes) for step, count in zip(steps, reached, strict=True)]


def _exchanges(trajectory: Trajectory) -> Iterator[tuple[str, str, str]]:
    """Each call of an episode: tool, arguments, and what was shown after it."""
    for turn in trajectory.turns:
        step = turn.step
        results = {result.call.id: result.content for result in step.results} if step else {}
        shown = step.observation.content if step and step.observation else ""
        for call in turn.action.calls:
            arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
            # A step need not have results of single calls: then the reply is what was shown.
            yield call.name, arguments, results.get(call.id, shown)


def _needs(tasks: Sequence[Task], oracle: Oracle | None) -> list[int | None]:
    """The calls that the oracle makes for each task; None where there is none, or where it fails
    of the task (`ORACLE_ERRORS`): an evaluation that was played is worth more than this number.
    Other errors, such as a file that is not there, go through."""
    needs: dict[str, int | None] = {}
    for task in tasks:
        if task.id not in needs:
            try:
                actions = oracle(task) if oracle is not None else None
            except ORACLE_ERRORS:
                actions = None
            needs[task.id] = None if actions is None else sum(len(one.calls) for one in actions)
    return [needs[task.id] for task in tasks]
