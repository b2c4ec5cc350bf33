"""Reports as tables and curves: a run's evaluations and comparisons, and the study it is of."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigError, DataError
from turnwise.storage.audits import Finding, audits, read_audit
from turnwise.storage.run_folder import RunFolder
from turnwise_view.dashboard.runs import STUDY, leads_out

REPORT, OF_STUDY = "report", "study"
AUDIT = "audit-"
"""Stands before the name of an audit, so that it is not the name of an evaluation."""
NAMES = {"reward": "outcome reward: the verdicts' mean, without rewards of turns"}
"""Numbers of an evaluation that are called otherwise than in its file."""
RESULTS = {True: "passed", False: "warning", None: ""}


def reports(path: Path) -> list[dict[str, str]]:
    """The names, kinds and titles of what there is to read."""
    folder, found = RunFolder.open(path), []
    if (path / "report.json").is_file():
        found.append({"name": REPORT, "kind": "report", "title": "The report of the run"})
    found += [
        {"name": name, "kind": "evaluation", "title": f"Evaluation: {name}"}
        for name in folder.evaluations()
    ]
    found += [
        {"name": f"{AUDIT}{name}", "kind": "audit", "title": title}
        for name, title in audits(path).items()
    ]
    if _has_study(path.resolve().parent):
        found.append({"name": OF_STUDY, "kind": "study", "title": "The study of this run"})
    return found


def _has_study(folder: Path) -> bool:
    file = folder / STUDY
    return file.is_file() and not leads_out(file, folder)


def report(path: Path, name: str) -> dict[str, Any]:
    """One of them. Raises ConfigError for a name that there is not."""
    if name not in [one["name"] for one in reports(path)]:
        raise ConfigError(f"this run has no report {name!r}")
    folder = RunFolder.open(path)
    if name == REPORT:
        return _of_run(folder)
    if name == OF_STUDY:
        return _of_study(path.resolve().parent)
    if name.startswith(AUDIT):
        return _of_audit(path, name.removeprefix(AUDIT))
    summary = folder.evaluation(name) or {}
    cautions, curves = "\n".join(summary.get("cautions", [])), _budgets({name: summary})
    return _page(f"Evaluation: {name}", "evaluation", _tables(summary), cautions, curves)


def _page(
    title: str,
    kind: str,
    tables: Sequence[Mapping[str, Any]],
    text: str = "",
    curves: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    return {"title": title, "kind": kind, "tables": tables, "text": text, "curves": curves}


def _of_run(folder: RunFolder) -> dict[str, Any]:
    evaluations = folder.evaluations()
    rows = [
        [name, _rate(one), _interval(one), one.get("n"), one.get("ungraded")]
        for name, one in evaluations.items()
    ]
    policies = ["policy", "success", "95% interval", "episodes", "ungraded"]
    tables = [{"title": "Policies on the held-out tasks", "columns": policies, "rows": rows}]
    pairs = folder.report().get("comparisons", [])
    if pairs:
        columns = ["first", "second", "difference", "95% interval", "p (corrected)"]
        rows = [
            [
                *(one["first"], one["second"], f"{one['difference']:+.1%}"),
                *(f"{one['low']:+.1%} to {one['high']:+.1%}", f"{one['p_corrected']:.2g}"),
            ]
            for one in pairs
        ]
        tables.append({"title": "The same tasks, pair by pair", "columns": columns, "rows": rows})
    file = folder.path / "report.md"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    title = f"Report: {folder.report().get('name', folder.path.name)}"
    return _page(title, "report", tables, text, _budgets(evaluations))


def _of_audit(path: Path, name: str) -> dict[str, Any]:
    audit = read_audit(path, name)
    findings: list[Finding] = audit["findings"]
    ranges = [(one.low, one.high) for one in findings]
    columns = {
        "check": [one.check for one in findings],
        "figure": [_number(one.figure) for one in findings],
        "95% interval": [
            "–" if low is None else f"{_number(low)} to {_number(high)}" for low, high in ranges
        ],
        "bound": [_number(one.bound) for one in findings],
        "result": [RESULTS[one.passed] for one in findings],
        "note": [one.note for one in findings],
    }
    said = {title: values for title, values in columns.items() if set(values) - {"", "–"}}
    rows = list(zip(*said.values(), strict=True))
    table = {"title": "Findings", "columns": list(said), "rows": rows}
    return _page(audit["title"], "audit", [table])


def _tables(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An evaluation's own tables: what was counted, how episodes ended, and labels of tasks."""
    numbers = [
        [NAMES.get(name, name.replace("_", " ")), _number(value)]
        for name, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    tables = [{"title": "Numbers", "columns": ["name", "value"], "rows": numbers}]
    outcomes = [[name, count] for name, count in summary.get("outcomes", {}).items()]
    tables.append({"title": "Outcomes", "columns": ["outcome", "episodes"], "rows": outcomes})
    for label, values in summary.get("breakdown", {}).items():
        rows = [[value, _rate(one), _interval(one), one.get("n")] for value, one in values.items()]
        columns = [label, "success", "95% interval", "episodes"]
        tables.append({"title": f"By {label}", "columns": columns, "rows": rows})
    return tables


def _budgets(evaluations: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Success by what an episode was allowed, a line for each evaluation."""
    kinds = {kind for one in evaluations.values() for kind in one.get("budgets", {})}
    curves = []
    for kind in sorted(kinds):
        budgets = {name: one.get("budgets", {}) for name, one in evaluations.items()}
        known = {name: one[kind] for name, one in budgets.items() if kind in one}
        most = max((pairs[-1][0] for pairs in known.values() if pairs), default=1)
        lines = []
        for name, pairs in known.items():  # more than was ever used adds no success
            highest = pairs[-1][1] if pairs else 0.0
            steps, rates = zip((0, 0.0), *pairs, (most, highest), strict=True)
            lines.append({"name": name, "steps": list(steps), "values": list(rates)})
        title = f"Success within a budget of {kind.replace('_', ' ')}"
        curves.append({"title": title, "lines": lines})
    return curves


def _of_study(folder: Path) -> dict[str, Any]:
    file = folder / STUDY
    try:
        figures = json.loads(file.read_text(encoding="utf-8"))
        seeds = [f"seed {seed}" for seed in figures["seeds"]]
        columns = ["metric", "arm", *seeds, "mean", "95% interval"]
        rows = [
            [
                metric,
                arm,
                *(_number(one["value"]) for one in of["by_seed"].values()),
                *_mean(of["over_seeds"]),
            ]
            for arm, metrics in figures["arms"].items()
            for metric, of in metrics.items()
        ]
        effects = [
            [_claim(effect), effect["verdict"], *_mean(effect["over_seeds"]), effect["why"]]
            for effect in figures["effects"]
        ]
        title, about = str(figures["title"]), str(figures["about"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{file} cannot be read: {error!r}") from None
    claims = ["claim", "verdict", "difference", "95% interval", "why"]
    verdicts = {"title": "Effects", "columns": claims, "rows": effects}
    numbers = {"title": "Arms", "columns": columns, "rows": sorted(rows, key=lambda row: row[0])}
    return _page(title, "study", [verdicts, numbers], about)


def _claim(effect: Mapping[str, Any]) -> str:
    """The claim in the study's words, or what is held against what."""
    return effect["claim"] or f"{effect['metric']}: {effect['arm']} against {effect['against']}"


def _mean(found: Mapping[str, float | None] | None) -> list[str]:
    """A mean over seeds and its interval, in two cells."""
    mean, low, high = (None if found is None else found[name] for name in ("mean", "low", "high"))
    whole = "–" if low is None or high is None else f"{_number(low)} to {_number(high)}"
    return [_number(mean), whole]


def _rate(one: Mapping[str, Any]) -> str:
    rate = one.get("success")
    return "–" if rate is None else f"{rate:.1%}"


def _interval(one: Mapping[str, Any]) -> str:
    low, high = one.get("low"), one.get("high")
    return "–" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
