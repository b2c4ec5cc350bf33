"""The commands `environments`, `rewards`, `play` and `inject`.

What they do is elsewhere, in what they import when they are called: `measurement.py`, `play.py`,
`repair/injection.py`.
"""

import asyncio
import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from turnwise.commands.evaluating import AsJson, Overrides
from turnwise.commands.failures import exit_code, fail
from turnwise.commands.printing import (
    console,
    print_json,
    print_line,
    print_table,
    terminal_display,
)
from turnwise.config import load_recipe, parse_override, set_key
from turnwise.errors import ConfigError
from turnwise.evaluation.intervals import wilson
from turnwise.rewards.parts import REWARD_PARTS, RewardPart
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
    from turnwise.environments.registry import ENVIRONMENTS
    from turnwise_environments.measurement import measure, measure_all

    folder = None if run is None else RunFolder.open(run)
    display = terminal_display()
    chosen = named_with_options(names or [])
    for name, _ in chosen:
        ENVIRONMENTS.get(name)
    known = sorted(ENVIRONMENTS.names())
    display.phase("environments", len(chosen or known))
    rows = []
    measured = (measure(name, options, tasks) for name, options in chosen) if chosen else None
    for row in measured or measure_all(known, tasks):
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


def one_with_options(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The one of such words. Raises ConfigError where they name several."""
    first, *others = named_with_options(words)
    if others:
        raise ConfigError(f"{others[0][0]}: name one only, and write its options as key=value")
    return first


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
            count = row["oracle_played"] if name == "oracle" else played
            yield Finding(words, row[name], *wilson(round(row[name] * count), count))
    for name, score in row["reference_scores"].items():
        yield Finding(f"Success of {name}, as the environment states it", score)
    for name, words in CHECKS.items():
        if row[name] is not None:
            yield Finding(words, passed=row[name])
    yield Finding("Steps a second", row["steps_per_second"])
    for warning in row["warnings"]:
        yield Finding("An oddity of its data", note=warning)
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
            table.add_row(escape(row["name"]), *["–"] * 6)
            continue
        rates = ["–" if row[key] is None else f"{row[key]:.1%}" for key in SCORES]
        checks = " ".join(f"{words[row[key]]:<3}" for key in CHECKS)
        speed = f"{row['steps_per_second']:.0f}"
        table.add_row(escape(row["name"]), str(row["tasks"]), *rates, checks, speed)
    notes = [f"{row['name']}: {note}" for row in rows for note in _notes(row)]
    table.caption = escape("\n".join(notes)) or None
    return table


def _notes(row: Mapping[str, Any]) -> list[str]:
    """List what there is to say of an environment beside its numbers."""
    scores = [f"reference {name} {share:.1%}" for name, share in row["reference_scores"].items()]
    weak = [f"its verifier can be deceived: {weakness}" for weakness in row["weaknesses"]]
    return [*([row["note"]] if row["note"] else []), *row["warnings"], *scores, *weak]


_OPTION = re.compile(r"[\w.-]+=")


def rewards(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="A part, such as path/to/file.py:function, or an environment with its options, "
            "for what it reports; all built-in parts if not given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the parts of rewards: what they are measured of, their range, options and meaning."""
    title, parts = _parts(names or [])
    rows = [{"part": name, **described(part)} for name, part in parts.items()]
    if as_json:
        print_json(rows)
    else:
        print_table(parts_table(title, rows))


def _parts(names: list[str]) -> tuple[str, Mapping[str, RewardPart]]:
    from turnwise.environments.base import Environment
    from turnwise.environments.registry import ENVIRONMENTS, make_environment

    if not names:
        return "parts", {name: REWARD_PARTS.get(name) for name in REWARD_PARTS.descriptions()}
    name, options = one_with_options(names)
    part = None if name in ENVIRONMENTS.descriptions() else REWARD_PARTS.get(name)
    kind = None if part is None else part.function
    if part is None or (isinstance(kind, type) and issubclass(kind, Environment)):
        spec = make_environment(name, options).spec
        return f"what {spec.name} reports, version {spec.version}", spec.parts
    if options:
        raise ConfigError(f"rewards: {name} is a part: its options are set in a recipe")
    return name, {name.rpartition(":")[2]: part}


def described(part: RewardPart) -> dict[str, Any]:
    """Scope, range, options with their defaults, and description; None for what has no bound."""
    low, high = (end if math.isfinite(end) else None for end in (part.low, part.high))
    options = {
        name: None if option.default is inspect.Parameter.empty else option.default
        for name, option in part.options.items()
    }
    return {
        "scope": str(part.scope),
        "low": low,
        "high": high,
        "total": part.total,
        "options": options,
        "description": part.description,
    }


def parts_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """A row for each part."""
    table = Table(
        Column("part", no_wrap=True),
        "of",
        "range",
        Column("options", overflow="fold"),
        "meaning",
        title=escape(title),
    )
    for row in rows:
        options = ", ".join(f"{name}={_written(value)}" for name, value in row["options"].items())
        cells = (row["part"], row["scope"], range_text(row), options, row["description"])
        table.add_row(*map(escape, cells))
    return table


def range_text(row: Mapping[str, Any]) -> str:
    """A range, with that of the sum over an episode's turns where it is declared."""
    if row["low"] is None and row["high"] is None:
        return "not known"
    ends = ("none" if end is None else f"{end:g}" for end in (row["low"], row["high"]))
    total = "" if row["total"] is None else ", in all {:g} to {:g}".format(*row["total"])
    return " to ".join(ends) + total


def _written(value: Any) -> str:
    if value is None:
        return "to be given"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def play(
    recipe: Annotated[str, typer.Argument(help="The recipe whose environment to play.")],
    overrides: Overrides = None,
    task: Annotated[int, typer.Option(min=0, help="Number of the held-out task.")] = 0,
) -> None:
    """Be the policy yourself: the same loop, with your keyboard in the model's place."""
    loaded = load_recipe(recipe, overrides or [])
    from turnwise.parts.first_checks import configure

    configure(loaded)
    from turnwise_environments.play import play_episode

    try:
        asyncio.run(play_episode(loaded, task, console))
    except KeyboardInterrupt as ended:
        fail("interrupted", exit_code(ended))


def inject(
    repository: Annotated[Path, typer.Argument(help="A git repository with tests.")],
    output: Annotated[Path, typer.Argument(help="Where to write the bugs: a new .jsonl file.")],
    count: Annotated[int, typer.Option(min=1, help="Number of bugs to make, at most.")] = 100,
    runner: Annotated[str, typer.Option(help="Test runner: plain or pytest.")] = "plain",
    packages: Annotated[
        list[str] | None, typer.Option(help="A folder that the code may import from.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time limit of one run of all tests.")] = 60.0,
) -> None:
    """Put bugs into a copy of your repository: tasks for the environment `repair`."""
    from turnwise.sandbox.settings import Limits, SandboxSettings
    from turnwise_environments.repair.injection import inject as injected
    from turnwise_sandbox.sandbox import Sandbox

    if runner not in ("plain", "pytest"):
        raise ConfigError(f"--runner is plain or pytest, not {runner!r}")
    if output.exists() or output.suffix != ".jsonl" or not output.parent.is_dir():
        raise ConfigError(f"{output}: give a new file, in a folder, whose name ends with .jsonl")
    limits = Limits(seconds=seconds, cpu_seconds=seconds)
    with Sandbox(SandboxSettings(limits=limits, packages=tuple(packages or ()))) as sandbox:
        records = list(injected(repository, sandbox, runner, count))
    output.write_text("".join(json.dumps(record) + "\n" for record in records))
    print_line(f"{len(records)} bugs in {output}: environment.options.tasks.file")
