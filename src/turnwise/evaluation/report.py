"""The report of a run: its measurements, and everything needed to interpret them.

A result names its environment, tool budget, scaffold, evaluator and failure-recovery policy: a
number without them is not comparable with any other.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.evaluation.details import (
    caution_lines,
    comparison_lines,
    effort_lines,
    reliability_lines,
)
from turnwise.evaluation.evaluate import best_constant_answer
from turnwise.evaluation.paired import Comparison
from turnwise.types import Task

POLICIES = ("base", "cold_start", "sft", "trained", "evaluated", "as_trained")
"""Evaluations of policies in the run's environment; all others are ablations."""
RULER = "|---|---|---|---|---|---|"


def build_report(
    recipe: Recipe,
    environment: Environment,
    heldout: Sequence[Task],
    evaluations: Mapping[str, Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    signal: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """The report as data: one key for each evaluation (`cold_start`, `trained`, ablations such as
    `no_search`), each with `success`, `low`, `high`, `n` and `reward`, its mean; `comparisons` of
    the trained policy with those before it (`paired.py`); `learning_signal`, how many RL steps
    taught nothing and why (`monitor/no_signal.py`); `seconds`, `commit`, and `statement`."""
    return {
        "name": recipe.name,
        "seed": recipe.seed,
        **{name: dict(summary) for name, summary in evaluations.items()},
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "constant_answer": best_constant_answer(heldout),
        "learning_signal": dict(signal),
        "statement": statement(recipe, environment),
        "seconds": round(seconds, 1),
        "commit": commit(),
        "version": version("turnwise"),
    }


def statement(recipe: Recipe, environment: Environment) -> dict[str, str]:
    """The facts that a reader must know to compare the figures with others."""
    spec, limits = environment.spec, recipe.rollout
    tools = ", ".join(tool.name for tool in environment.tools()) or "none"
    return {
        "environment": f"{spec.name} {spec.version}, data {spec.data_hash[:12] or 'unhashed'}; "
        f"reference scores: {spec.reference_scores or 'none stated'}",
        "tool budget": (
            f"tools: {tools}; at most {limits.max_tool_calls} calls, {limits.max_turns} turns, "
            f"{limits.max_turn_tokens} tokens a turn, {limits.max_tokens} tokens in all, "
            f"{limits.max_seconds:g} s"
        ),
        "scaffold": f"{recipe.scaffold.name}; sampled at temperature "
        f"{recipe.evaluation.temperature:g}, {_episodes(recipe.evaluation.episodes_per_task)}",
        "evaluator": f"verify() of {spec.name} {spec.version}, on the whole trajectory",
        "failure recovery": "nothing is retried; a malformed action gets a correction and counts "
        "against the budget; infrastructure and grader failures are ungraded and counted; "
        f"more than {limits.max_ungraded_share:.0%} of them stop the run",
    }


def report_markdown(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [f"# {report['name']}, seed {report['seed']}", "", *_table(report), ""]
    lines += comparison_lines([Comparison(**one) for one in report["comparisons"]])
    for name, summary in _evaluations(report):
        lines += [f"## {name}", "", f"Outcomes: {_pairs(summary['outcomes'])}.", ""]
        if name in POLICIES:
            lines += caution_lines(summary)
        lines += [*reliability_lines(summary), *effort_lines(summary)]
        for label, values in summary["breakdown"].items():
            lines += [
                f"| {label} | success | 95% interval | n | reward | tool calls |",
                RULER,
            ]
            lines += [f"| {value} | {_cells(part)} |" for value, part in values.items()]
            lines.append("")
    lines += [*_signal(report["learning_signal"]), "## What the figures mean", ""]
    lines += [f"- **{key}**: {value}" for key, value in report["statement"].items()]
    if report["constant_answer"] is not None:
        share = f"{report['constant_answer']:.1%}"
        lines += [f"- **constant answer**: always giving the most frequent one scores {share}"]
    lines += [
        f"- **run**: {report['seconds']:.0f} s, commit {report['commit']}, "
        f"turnwise {report['version']}",
    ]
    return "\n".join(lines) + "\n"


def commit() -> str:
    """The source's git commit, with `+changes` when files differ from it; "unknown" for a copy
    that git does not track."""
    folder = Path(__file__).parent
    try:
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+changes" if changed else head


def report_json(report: Mapping[str, Any]) -> str:
    """The report for programs."""
    return json.dumps(report, indent=2) + "\n"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _evaluations(report: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, part) for name, part in report.items() if isinstance(part, dict) and "n" in part]


def _table(report: Mapping[str, Any]) -> list[str]:
    rows = [f"| {name} | {_cells(part)} |" for name, part in _evaluations(report)]
    head = ["| policy | success | 95% interval | n | reward | tool calls |", RULER]
    return [*head, *rows] if rows else ["No evaluation was asked for."]


def _cells(part: Mapping[str, Any]) -> str:
    interval = f"{part['low']:.1%} – {part['high']:.1%}"
    reward = "–" if part["reward"] is None else f"{part['reward']:.2f}"
    rate = f"{part['success']:.1%} | {interval}"
    return f"{rate} | {part['n']} | {reward} | {part['tool_calls']:.2f}"


def _signal(signal: Mapping[str, Any]) -> list[str]:
    """The number of steps that taught nothing, where there are any."""
    if not signal["without"]:
        return []
    head = f"{signal['without']} of {signal['steps']} RL steps had no learning signal:"
    reasons = [f"- {count}: {why}." for why, count in signal["reasons"].items()]
    return ["## Learning signal", "", head, "", *reasons, ""]


def _episodes(count: int) -> str:
    if count == 1:
        return "one episode a task; 95% intervals are Wilson's"
    return f"{count} episodes a task; 95% intervals are clustered by task"


def _pairs(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
