"""The command that puts a run's saved trajectories before a judge."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from turnwise.commands.printing import figure, print_json, print_line, print_table, terminal_display
from turnwise.errors import DataError

if TYPE_CHECKING:
    from turnwise.storage.audits import Finding


def judge(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    settings: Annotated[Path, typer.Argument(help="A .toml file with a judge, under [judge].")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to it, as in judge.max_calls=100")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="A step's number, or a name such as evaluation-trained.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Most trajectories to judge.")] = 200,
    preferences: Annotated[
        Path | None,
        typer.Option(
            help="Write each group's best and worst episode by the judge as messages (.jsonl), in "
            "place of the comparison with the verdicts."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of a table, with all judgements.")
    ] = False,
) -> None:
    """Judge a run's saved trajectories with a model, and say how far it agrees with the
    environment's verdicts."""
    from turnwise import event_loop
    from turnwise.commands.terminal import choose_rows
    from turnwise.parts.first_checks import configure
    from turnwise.storage.audits import write_audit
    from turnwise.storage.run_folder import RunFolder
    from turnwise.storage.trajectory_rows import rows_of_tasks
    from turnwise_judges.settings import load_judge

    config, folder = load_judge(settings, overrides or []), RunFolder.open(run)
    chosen, name = choose_rows(run, step, None, count)
    rows = rows_of_tasks(chosen)
    configure(folder.recipe())
    from turnwise_judges.judging import judge_rows, judged_rows

    if preferences is not None:
        from turnwise.storage.messages import write_preferences

        if preferences.exists():
            raise DataError(f"{preferences} exists already: choose another file")
        regraded = event_loop.run(judged_rows(folder, rows, config, terminal_display()))
        written, left_out = write_preferences(folder, regraded, preferences)
        print_line(f"{written} lines in {preferences} ({left_out} pairs left out)")
        return
    summary, judged = event_loop.run(judge_rows(folder, rows, config, terminal_display()))
    write_audit(folder, f"judge-{name}", f"Judge and verifier: {name}", _findings(summary))
    if as_json:
        print_json({"file": name, **summary, "judgements": [asdict(one) for one in judged]})
    else:
        print_table(_table(f"{run}: {name}", summary))
        problems = Counter(one.reason for one in judged if one.judged is None)
        for problem, times in problems.most_common(3):
            print_line(f"without a judgement, {times} times: {problem}")


def _findings(summary: dict[str, Any]) -> Iterator["Finding"]:
    from turnwise.storage.audits import Finding

    for name, value in summary.items():
        if not name.endswith("_interval"):
            yield Finding(name.replace("_", " "), value, *summary.get(f"{name}_interval", ()))


def _table(title: str, summary: dict[str, Any]) -> Table:
    table = Table("judge and verifier", "", title=title)
    for name, value in summary.items():
        if name.endswith("_interval") or math.isnan(value):
            continue
        low, high = summary.get(f"{name}_interval", (None, None))
        known = low is not None and not math.isnan(low)
        interval = f" (95%: {low:.3f} to {high:.3f})" if known else ""
        table.add_row(name, f"{figure(value)}{interval}")
    return table
