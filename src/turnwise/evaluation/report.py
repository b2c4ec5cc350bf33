"""The report of an evaluation or a run: its measurements, and what is needed to interpret them.

Everything that was measured is in report.json; report.md has it on one page.
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
    table,
)
from turnwise.evaluation.evaluate import best_constant_answer
from turnwise.evaluation.paired import Comparison
from turnwise.evaluation.statement import commit, statement
from turnwise.monitor.no_signal import summary
from turnwise.storage.audits import audits
from turnwise.storage.run_folder import KEPT, POLICIES, RunFolder
from turnwise.types import Task


def report_markdown(report: Mapping[str, Any]) -> str:
    """The report for people, on one page."""
    parts = {name: one for name, one in report.items() if isinstance(one, dict) and "n" in one}
    lines = [f"# {report['name']}, seed {report['seed']}", "", *_table(parts)]
    lines += _ungraded(parts)
    lines += comparison_lines([Comparison(**one) for one in report["comparisons"]])
    lines += caution_lines({name: part for name, part in parts.items() if name in POLICIES})
    lines += [*reliability_lines(parts), *part_lines(parts), *effort_table(parts)]
    lines += _breakdown(parts)
    # What a report is about; other evaluations are there to be compared with.
    for name in ("trained", *KEPT):
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


def _table(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not parts:
        return ["No evaluation was asked for.", ""]
    head = ["policy", "success", "95% interval", "n", "ungraded", "outcome reward", "tool calls"]
    rows = [
        [
            name,
            f"{part['success']:.1%}",
            f"{part['low']:.1%} – {part['high']:.1%}",
            str(part["n"]),
            str(part["ungraded"]),
            "–" if part["reward"] is None else f"{part['reward']:.2f}",
            f"{part['tool_calls']:.2f}",
        ]
        for name, part in parts.items()
    ]
    return table(head, rows)


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
    lines = []
    for label in dict.fromkeys(label for part in parts.values() for label in part["breakdown"]):
        of_label = {name: part["breakdown"].get(label, {}) for name, part in parts.items()}
        rows = [
            [value, *(_short(values.get(value)) for values in of_label.values())]
            for value in sorted({value for values in of_label.values() for value in values})
        ]
        lines += table([label, *of_label], rows)
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
    rows = [[str(count), signal["when"][why], why] for why, count in signal["reasons"].items()]
    found = table(["steps", "which", "why nothing was learned"], rows)
    return ["## Learning signal", "", head, "", *found]


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
    """Write and return the report: one key for each evaluation (`cold_start`, `trained`, ablations
    such as `no_search`), each with `success`, `low`, `high`, `n` and `reward`, its mean;
    `comparisons` of the trained policy with those before it (`paired.py`); `learning_signal`, how
    many RL steps taught nothing and why (`monitor/no_signal.py`); `seconds`, `commit`, and
    `statement`, in which `policy` says whose figures they are."""
    steps, without = folder.lines("metrics.jsonl"), folder.lines("no_signal.jsonl")
    audited = "; ".join(audits(folder.path).values()) or "none"
    report = {
        "name": recipe.name,
        "seed": recipe.seed,
        **{name: dict(found) for name, found in evaluations.items()},
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "constant_answer": best_constant_answer(heldout),
        "learning_signal": summary(len(steps), without),
        "statement": {**statement(recipe, environment, heldout, policy), "audits": audited},
        "seconds": round(seconds, 1),
        "commit": commit(),
        "version": version("turnwise"),
    }
    folder.write_text("report.json", json.dumps(report, indent=2) + "\n")
    folder.write_text("report.md", report_markdown(report))
    return report
