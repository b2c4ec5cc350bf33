"""Measures of `broken_verifier.toml`: when the alarm comes, and when half of the damage is done."""

from pathlib import Path
from statistics import fmean

from turnwise import open_run
from turnwise.storage.run_folder import RunFolder
from turnwise_trust.alarms import Alarms

HELDOUT = "exact_match"
WINDOW = 5


def alarm(folder: Path) -> float | None:
    """The step at which the run's first alarm comes; None for a run without one."""
    said: list[str] = []
    alarms = Alarms(RunFolder.open(folder), 0, said.append, HELDOUT)
    for line in open_run(folder).metrics().to_pylist():
        alarms.log(line, line["step"])
        if said:
            return float(line["step"])
    return None


def half_of_damage(folder: Path) -> float | None:
    """The first step from which on the held-out verifier's mean over five steps has lost half of
    what it loses from the first five to the last five; None where it loses nothing."""
    right = open_run(folder).metrics().column(f"reward/parts/{HELDOUT}").to_pylist()
    means = [fmean(right[end - WINDOW : end]) for end in range(WINDOW, len(right) + 1)]
    middle = (means[0] + means[-1]) / 2
    lost = [step for step, mean in enumerate(means, WINDOW) if mean <= middle]
    return float(lost[0]) if means[-1] < means[0] else None
