"""The report of a run, or of an evaluation that is kept: report.json and report.md in its folder.

Not here: what stands in it (`evaluation/report.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.evaluation.paired import Comparison
from turnwise.evaluation.report import build_report, report_json, report_markdown
from turnwise.monitor.no_signal import summary
from turnwise.storage.run_folder import RunFolder
from turnwise.training.components import Components
from turnwise.types import Task


def write_report(
    folder: RunFolder,
    recipe: Recipe,
    environment: Environment,
    heldout: Sequence[Task],
    evaluations: Mapping[str, Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    seconds: float,
    policy: str,
) -> dict[str, Any]:
    """Write and return the report; `policy` says whose figures they are."""
    report = build_report(
        recipe,
        environment,
        heldout,
        evaluations,
        comparisons,
        summary(len(folder.lines("metrics.jsonl")), folder.lines("no_signal.jsonl")),
        seconds,
        policy,
    )
    folder.write_text("report.json", report_json(report))
    folder.write_text("report.md", report_markdown(report))
    return report


def weights_text(weights: Path | None) -> str:
    """Name the checkpoint of which weights are; None are the model's own."""
    return "weights as the recipe names them" if weights is None else f"weights of {weights}"


def computes_text(parts: Components) -> str:
    """Say with how many threads, in which type, and why, a run computes."""
    recipe = parts.recipe
    cores = "thread" if recipe.threads == 1 else "threads"
    chosen = f"{recipe.learning.compute_dtype} ({parts.why_compute_dtype})"
    return f"computing with {recipe.threads} {cores}, updates in {chosen}"


def model_text(parts: Components) -> str:
    """Say a model's name, size and type."""
    config = parts.recipe.model
    size = sum(weight.numel() for weight in parts.model.parameters())
    adapters = f", adapters of rank {config.lora_rank} among them" if config.lora_rank else ""
    return f"{config.name}, {size:,} parameters{adapters}, {config.dtype}"
