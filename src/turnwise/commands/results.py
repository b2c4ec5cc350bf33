"""Results on the command line: tables of reports, evaluations and comparisons."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.details import cautions_of, effort_sentences, probability
from turnwise.evaluation.effort import plot_budgets
from turnwise.evaluation.paired import Comparison
from turnwise.storage.run_folder import RunFolder, new_file

if TYPE_CHECKING:
    from turnwise.evaluation.expected import ExpectedRuns, Place

OF_SEVERAL = ("pass@k", "pass^k", "best@k")
"""The figures of several episodes of a task, by k."""


def report_tables(report: Mapping[str, Any]) -> list[Table]:
    """The effect of RL: every evaluation, then each label's values before and after."""
    parts = {key: part for key, part in report.items() if isinstance(part, dict) and "n" in part}
    if not parts:
        return []
    tables = [rates_table(f"{report['name']}: {size_text(next(iter(parts.values())))}", parts)]
    # The others' cautions are in the report.
    cautions = cautions_of("trained", parts) if "trained" in parts else []
    tables[0].caption, tables[0].caption_justify = "\n".join(cautions) or None, "left"
    tables += _reliability_table(parts)
    labels = {label for part in parts.values() for label in part["breakdown"]}
    for label in sorted(labels):
        found = [part["breakdown"].get(label, {}) for part in parts.values()]
        values = sorted({value for one in found for value in one})
        if len(values) < 2:
            continue
        table = Table(label, title=f"success and tool calls by {label}")
        for name in parts:
            table.add_column(name, justify="right")
        for value in values:
            table.add_row(value, *(_short(one.get(value)) for one in found))
        tables.append(table)
    return tables


def summary_table(name: str, summary: Mapping[str, Any]) -> Table:
    """One evaluation with its breakdown, and sentences on the rest of it."""
    rows = {"all": summary}
    for label, values in summary["breakdown"].items():
        rows |= {f"{label} {value}": part for value, part in values.items()}
    table = rates_table(f"{name}: {size_text(summary)}", rows)
    notes = [*_reliability(summary), *effort_sentences(summary), *summary["cautions"]]
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


def evaluation_tables(run: Path, file: str) -> list[Table]:
    """The figures of the evaluation whose trajectories a file of a run holds; none for others."""
    summary = RunFolder.open(run).evaluation(file.removeprefix("evaluation-"))
    if summary is None or not file.startswith("evaluation-"):
        return []
    return [summary_table(file, summary | {"breakdown": {}})]


def save_plot(run: Path, file: Path) -> None:
    """Draw the budget curves of a run's evaluations. Raises DataError where it has none or the file
    cannot be written, ConfigError for a file of another kind."""
    if file.suffix != ".png":
        raise ConfigError(f"--plot {file}: give a file whose name ends with .png")
    evaluations = RunFolder.open(run).evaluations()
    if not evaluations:
        raise DataError(f"{run} has no evaluation yet")
    with new_file(file):
        plot_budgets(evaluations, file)


def paired_table(comparisons: Sequence[Comparison]) -> Table:
    """Evaluations on the same tasks, pair by pair."""
    first = comparisons[0]
    several = f", {first.pairs} episodes of each" if first.pairs > first.tasks else ""
    names = (Column(place, overflow="fold") for place in ("second", "less first"))
    table = Table(*names, title=f"the same {first.tasks} tasks{several}")
    for column in ("points", "95% interval", "only one", "p", "detectable"):
        table.add_column(column, justify="right", no_wrap=True)
    notes = ["only one: pairs in which only the second, and only the first succeeded"]
    for one in comparisons:
        table.add_row(
            f"{one.second}: {one.success_second:.1%}",
            f"{one.first}: {one.success_first:.1%}",
            f"{100 * one.difference:+.1f}",
            f"{100 * one.low:+.1f} – {100 * one.high:+.1f}",
            f"{one.only_second} : {one.only_first}",
            probability(one.p_corrected),
            f"{100 * one.detectable:.1f}",
        )
        notes.append(f"{one.second} and {one.first}: {one.verdict}")
        if one.left_out:
            notes.append(f"{one.left_out} pairs are left out: an episode of theirs has no grade")
        if not one.same_seeds:
            notes.append("their episodes had other seeds: tasks are paired, luck is not")
    if len(comparisons) > 1:
        notes.append("p has Holm's correction for the number of comparisons")
    table.caption, table.caption_justify = "\n".join(dict.fromkeys(notes)), "left"
    return table


def expected_table(
    run: str, known: Mapping[str, Any], expected: "ExpectedRuns", places: Sequence["Place"]
) -> Table:
    """The figures of a run, of which the facts are known, and where they are expected."""
    runs, notes = expected.runs, ["expected: 95% prediction intervals, for all figures together"]
    table = Table("", title=f"{run} among {len(runs)} runs of {expected.recipe.name}")
    for column in ("this run", "expected", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for one in places:
        form = "{:.1%}" if one.figure.startswith("success") else "{:.2f}"
        value, low, high = map(form.format, (one.value, one.low, one.high))
        table.add_row(one.figure, value, f"{low} – {high}", "inside" if one.inside else "outside")
    made = list(dict.fromkeys(one["made"] for one in runs))
    notes += [f"made with {text}" for text in made]
    notes += [f"this run: {known['made']}"] if known["made"] not in made else []
    if known["environment"] not in {one["environment"] for one in runs}:
        notes.append("this run's environment has other data: its tasks are others")
    table.caption, table.caption_justify = "\n".join(notes), "left"
    return table


def rates_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """The success of evaluations, a row for each."""
    table = Table("", title=title)
    for column in ("success", "95% interval", "n", "ungraded", "outcome reward", "tool calls"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        interval = f"{row['low']:.1%} – {row['high']:.1%}"
        ungraded = str(row.get("ungraded", ""))
        calls = f"{row['tool_calls']:.2f}"
        reward = "–" if row["reward"] is None else f"{row['reward']:.2f}"
        rate = f"{row['success']:.1%}"
        table.add_row(name, rate, interval, str(row["n"]), ungraded, reward, calls)
    return table


def size_text(summary: Mapping[str, Any]) -> str:
    """The number of tasks, and of episodes where these are more."""
    several = f", {summary['n']} episodes" if summary["n"] > summary["tasks"] else ""
    return f"{summary['tasks']} held-out tasks{several}"


def _reliability_table(parts: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Give pass@k, pass^k and the best of k, where measured, a row for each evaluation."""
    several = {name: part for name, part in parts.items() if "pass@k" in part}
    if not several:
        return []
    first = next(iter(several.values()))
    columns = [(name, k) for name in OF_SEVERAL for k in first.get(name, ())]
    best = f", and the best by {first['best_by']}" if "best_by" in first else ""
    table = Table("", title=f"at least one of k episodes, and all of k{best}, by task")
    for name, k in columns:
        table.add_column(name[:-1] + k, justify="right")
    for name, part in several.items():
        means = [part[kind][k]["mean"] for kind, k in columns]
        table.add_row(name, *("–" if mean is None else f"{mean:.1%}" for mean in means))
    return [table]


def _reliability(summary: Mapping[str, Any]) -> list[str]:
    """Give pass@k, pass^k and the best of k a line for each k above 1, where they were measured."""
    by = {"best@k": f" by {summary.get('best_by')}"}
    return [
        f"{name[:-1]}{k}{by.get(name, '')} {_estimate(entry)}"
        for name in OF_SEVERAL
        for k, entry in summary.get(name, {}).items()
        if k != "1"
    ]


def _estimate(entry: Mapping[str, Any]) -> str:
    if entry["mean"] is None:
        return "is undefined: no task has so many graded episodes"
    left_out = f", undefined for {entry['undefined']} tasks" if entry["undefined"] else ""
    return f"{entry['mean']:.1%} ({entry['low']:.1%} – {entry['high']:.1%}{left_out})"


def _short(part: Mapping[str, Any] | None) -> str:
    return "" if part is None else f"{part['success']:6.1%}  {part['tool_calls']:.2f}"
