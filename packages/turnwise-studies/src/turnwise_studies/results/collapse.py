"""Collapses of finished runs: the step at which success broke down, and the step of the warning.
For studies, as `function = "turnwise_studies.results.collapse:collapse"`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.monitor.echo_trap import Thresholds, averages, detections
from turnwise.storage.run_folder import RunFolder

SUCCESS = "rollout/success"
WINDOW = Thresholds().window


def collapse_step(history: Sequence[Mapping[str, Any]]) -> int | None:
    """The first step at which success, averaged over five, is at most half of the highest before;
    None without."""
    success = averages([line[SUCCESS] for line in history], WINDOW)
    falls = (
        place + WINDOW
        for place, rate in enumerate(success)
        if place and rate <= 0.5 * max(success[:place]) and max(success[:place])
    )
    return next(falls, None)


def highest(run: Path) -> float | None:
    """Success, averaged over five steps; None for fewer steps."""
    return max(averages([line[SUCCESS] for line in _history(run)], WINDOW), default=None)


def collapse(run: Path) -> float | None:
    """The step at which a run collapsed, or None."""
    return collapse_step(_history(run))


def warning(run: Path) -> float | None:
    """The first step at which the Echo Trap would be warned of, where the highest reward is 1."""
    found = filter(None, detections(_history(run), 1.0, Thresholds()))
    return next((trap.step for trap in found), None)


def _history(run: Path) -> list[dict[str, Any]]:
    return RunFolder.open(run).lines("metrics.jsonl")
