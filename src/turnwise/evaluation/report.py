"""The report of an evaluation or a run: its measurements, and what is needed to interpret them.

Everything that was measured is in report.json; report.md has it on one page. Not here: the facts
that stand below the figures (`statement.py`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.evaluation.details import (
    caution_lines,
    comparison_lines,
    effort_lines,
    effort_table,
    part_lines,
    reliability_lines,
)
from turnwise.evaluation.evaluate import best_constant_answer
from turnwise.evaluation.paired import Comparison
from turnwise.evaluation.statement import commit, statement
from turnwise.monitor.no_signal import summary
from turnwise.storage.run_folder import POLICIES, RunFolder
from turnwise.types import Task

MAIN = ("trained", "evaluated", "as_trained")
"""Evaluations that a report is about; the others are there to be compared with."""


def build_report(
    recipe: Recipe,
    environment: Environment,
    heldout: Sequence[Task],
    evaluations: Mapping[str, Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    signal: Mapping[str, Any],
    seconds: float,
    policy: str,
) -> dict[str, Any]:
    """The report as data: one key for each evaluation (`cold_start`, `trained`, ablations such as
    `no_search`), each with `success`, `low`, `high`, `n` and `reward`, its mean; `comparisons` of
    the trained policy with those before it (`paired.py`); `learning_signal`, how many RL steps
    taught nothing and why (`monitor/no_signal.py`); `seconds`, `commit`, and `statement`, in which
    `policy` says whose figures they are."""
    return {
        "name": recipe.name,
        "seed": recipe.seed,
        **{name: dict(summary) for name, summary in evaluations.items()},
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "constant_answer": best_constant_answer(heldout),
        "learning_signal": dict(signal),
        "statement": statement(recipe, environment, heldout, policy),
        "seconds": round(seconds, 1),
        "commit": commit(),
        "version": version("turnwise"),
    }


def report_markdown(report: Mapping[str, Any]) -> str:
    """The report for people, on one page."""
    parts = {name: one for name, one in report.items() if isinstance(one, dict) and "n" in one}
    lines = [f"# {report['name']}, seed {report['seed']}", "", *_table(parts), ""]
    lines += _ungraded(parts)
    lines += comparison_lines([Comparison(**one) for one in report["comparisons"]])
    lines += caution_lines({name: part for name, part in parts.items() if name in POLICIES})
    lines += [*reliability_lines(parts), *part_lines(parts), *effort_table(parts)]
    lines += _breakdown(parts)
    for name in MAIN:
        if name in parts:
            found = effort_lines(parts[name])
            lines += [f"## Effort: {name}", "", *found] if found else []
    if parts:
        outcomes = [f"- {name}: {_pairs(part['outcomes'])}." for name, part in parts.items()]
        lines += ["## Outcomes", "", *outcomes, ""]
    lines += [*_signal(report["learning_signal"]), "## What the figures mean", ""]
    lines += [f"- **{key}**: {value}." for key, value in report["statement"].items()]
    lines += [f"- **time**: {report['seconds']:.0f} s in all."]
    return "\n".join(lines) + "\n"


def report_json(report: Mapping[str, Any]) -> str:
    """The report for programs."""
    return json.dumps(report, indent=2) + "\n"


def _table(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not parts:
        return ["No evaluation was asked for."]
    return [
        "| policy | success | 95% interval | n | ungraded | outcome reward | tool calls |",
        "|---|---|---|---|---|---|---|",
        *(f"| {name} | {_cells(part)} |" for name, part in parts.items()),
    ]


def _cells(part: Mapping[str, Any]) -> str:
    reward = "–" if part["reward"] is None else f"{part['reward']:.2f}"
    counts = f"{part['n']} | {part['ungraded']}"
    rate = f"{part['success']:.1%} | {part['low']:.1%} – {part['high']:.1%}"
    return f"{rate} | {counts} | {reward} | {part['tool_calls']:.2f}"


def _ungraded(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The success that there would be if the ungraded had failed, where there are any."""
    found = [
        f"{name} {part['success_if_ungraded_failed']:.1%}"
        for name, part in parts.items()
        if part["ungraded"]
    ]
    sentence = f"Success if the ungraded episodes had failed: {', '.join(found)}."
    return [sentence, ""] if found else []


def _breakdown(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table for each label of tasks, with a column for each evaluation."""
    lines = []
    for label in dict.fromkeys(label for part in parts.values() for label in part["breakdown"]):
        of_label = {name: part["breakdown"].get(label, {}) for name, part in parts.items()}
        lines += [f"| {label} | {' | '.join(of_label)} |", "|---" * (1 + len(of_label)) + "|"]
        for value in sorted({value for values in of_label.values() for value in values}):
            cells = [_short(values.get(value)) for values in of_label.values()]
            lines.append(f"| {value} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _short(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "–"
    return f"{part['success']:.1%} ({part['low']:.1%} – {part['high']:.1%}) of {part['n']}"


def _signal(signal: Mapping[str, Any]) -> list[str]:
    """The steps that taught nothing, by the reason, where there are any."""
    if not signal["without"]:
        return []
    head = f"{signal['without']} of {signal['steps']} RL steps had no learning signal:"
    rows = [
        f"| {count} | {signal['when'][why]} | {why} |" for why, count in signal["reasons"].items()
    ]
    table = ["| steps | which | why nothing was learned |", "|---|---|---|", *rows]
    return ["## Learning signal", "", head, "", *table, ""]


def _pairs(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


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
