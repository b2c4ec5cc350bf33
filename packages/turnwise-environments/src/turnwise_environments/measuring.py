"""The command `environments`: measurements as a table, and as audits in a run's folder.

Not here: measuring (`measurement.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from turnwise.commands.evaluating import AsJson
from turnwise.commands.printing import print_json, print_table, terminal_display
from turnwise.config import parse_override, set_key
from turnwise.errors import ConfigError
from turnwise.evaluation.intervals import wilson
from turnwise.storage.audits import Finding, write_audit
from turnwise.storage.run_folder import RunFolder

SCORES = {
    "oracle": "Success of the oracle",
    "noop": "Success of an idle agent",
    "random": "Success of a random agent",
}
CHECKS = {
    "deterministic": "Another process sees the same",
    "snapshot": "A restored episode goes on as it did",
    "concurrent": "Episodes at once see what they see alone",
}


def environments(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names, or path/to/file.py:Class, each followed by its options, as in "
            "gymnasium id=Taxi-v4 success=terminated; all if not given."
        ),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Most tasks to play of each.")] = 1000,
    run: Annotated[
        Path | None, typer.Option(help="A run folder that keeps the measurements, for `view`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure environments: scores, oracle, determinism, snapshots, speed. Needs no model."""
    from turnwise.environments.registry import ENVIRONMENTS, environment_names
    from turnwise_environments.measurement import measure, measure_all

    folder = None if run is None else RunFolder.open(run)
    display = terminal_display()
    chosen = named_with_options(names or [])
    for name, _ in chosen:
        ENVIRONMENTS.get(name)
    display.phase("environments", len(chosen or environment_names()))
    rows = []
    measured = (measure(name, options, tasks) for name, options in chosen) if chosen else None
    for row in measured or measure_all(list(environment_names()), tasks):
        rows.append(asdict(row))
        display.advance(row.name)
    display.close()
    if folder is not None:
        write_measurements(folder, rows)
    if as_json:
        print_json(rows)
    else:
        print_table(environments_table(rows))


def named_with_options(words: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Environments with their options, of words as they stand on a command line: a name, then its
    options as `key=value`.

    Raises ConfigError for an option before any name.
    """
    named: list[tuple[str, dict[str, Any]]] = []
    for word in words:
        if not _OPTION.match(word):
            named.append((word, {}))
        elif not named:
            raise ConfigError(f"{word}: name the environment first, then its options")
        else:
            set_key(named[-1][1], *parse_override(word))
    return named


def write_measurements(folder: RunFolder, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write an audit for each measurement (`Measurement`, as a mapping)."""
    for number, row in enumerate(rows, 1):
        name = row["name"]
        title = f"The environment {name}, measured without a model"
        write_audit(folder, f"environment-{number}", title, _findings(row))


def _findings(row: Mapping[str, Any]) -> Iterator[Finding]:
    if row["note"]:
        yield Finding("It could not be measured", note=row["note"])
        return
    played = row["played"]
    yield Finding("Tasks", row["tasks"], note=f"{played} of them were played")
    for name, words in SCORES.items():
        if row[name] is not None:
            yield Finding(words, row[name], *wilson(round(row[name] * played), played))
    for name, score in row["reference_scores"].items():
        yield Finding(f"Success of {name}, as the environment states it", score)
    for name, words in CHECKS.items():
        if row[name] is not None:
            yield Finding(words, passed=row[name])
    yield Finding("Steps a second", row["steps_per_second"])
    for weakness in row["weaknesses"]:
        yield Finding("A known way to deceive its verifier", passed=False, note=weakness)


def environments_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The measurements of each environment."""
    name = Column("name", min_width=16, overflow="fold")
    table = Table(name, "tasks", title="environments, played without a model")
    for column in SCORES:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("\n".join(CHECKS), no_wrap=True)
    table.add_column("steps/s", justify="right", no_wrap=True)
    words = {True: "yes", False: "NO", None: "–"}
    for row in rows:
        if row["note"]:
            table.add_row(row["name"], *["–"] * 6)
            continue
        rates = ["–" if row[key] is None else f"{row[key]:.1%}" for key in SCORES]
        checks = " ".join(f"{words[row[key]]:<3}" for key in CHECKS)
        speed = f"{row['steps_per_second']:.0f}"
        table.add_row(row["name"], str(row["tasks"]), *rates, checks, speed)
    notes = [f"{row['name']}: {note}" for row in rows for note in _notes(row)]
    table.caption = "\n".join(notes) or None
    return table


def _notes(row: Mapping[str, Any]) -> list[str]:
    """List what there is to say of an environment beside its numbers."""
    scores = [f"reference {name} {share:.1%}" for name, share in row["reference_scores"].items()]
    weak = [f"its verifier can be deceived: {weakness}" for weakness in row["weaknesses"]]
    return [*([row["note"]] if row["note"] else []), *scores, *weak]


_OPTION = re.compile(r"[\w.-]+=")
