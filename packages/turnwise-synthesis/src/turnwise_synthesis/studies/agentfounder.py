"""Measures of the study agentfounder: a run's folder to the loss of its SFT."""

import json
from pathlib import Path
from statistics import fmean

STEPS = 10
"""Steps of the mean: batches differ more than arms do."""


def early_loss(run: Path) -> float:
    """Mean over the first steps."""
    return fmean(_losses(run)[:STEPS])


def last_loss(run: Path) -> float:
    """Mean over the last steps."""
    return fmean(_losses(run)[-STEPS:])


def _losses(run: Path) -> list[float]:
    lines = (run / "cold_start.jsonl").read_text().splitlines()
    return [json.loads(line)["sft/loss"] for line in lines]
