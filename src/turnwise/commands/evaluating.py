"""Commands that measure policies: on held-out tasks, and against each other."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.printing import print_json, print_line, print_table
from turnwise.errors import ConfigError

Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to the recipe, as in train.steps=10 learning.learning_rate=1e-4"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            help="A run folder (its newest weights), one of its checkpoints, or a recipe."
        ),
    ],
    overrides: Overrides = None,
    inject: Annotated[
        str | None,
        typer.Option(
            help="Evaluate also with tools that fail: shares of calls that return an error or "
            "junk, as in error=0.2,junk=0.1."
        ),
    ] = None,
    without_instructions: Annotated[
        bool, typer.Option("--without-instructions", help="Evaluate also without the scaffold's.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Keep episodes and report in this empty folder, which is read as a run's is."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate an agent on held-out tasks, with a 95% interval."""
    from turnwise import api

    changes = overrides or []
    if inject is not None or without_instructions:
        from turnwise.evaluation.policies import EVALUATIONS

        robustness = EVALUATIONS.get("robustness")
        robustness(run, changes, inject, not without_instructions, out, as_json)
    else:
        summary = api.evaluate(run, *changes, out=out)
        if as_json:
            print_json(summary)
        else:
            from turnwise.commands.results import summary_table

            print_table(summary_table(run, summary))
            if asked := summary.get("endpoint"):
                counted = f"{asked['read']} tokens read, {asked['written']} written"
                print_line(f"{asked['requests']} requests; {counted}, as the endpoint counts them")
    if out is not None and not as_json:
        print_line(f"{out}/report.md says more; its episodes: turnwise show {out}")


def compare_runs(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, whose trained policies are meant, folders of evaluate --out, or "
            "RUN@EVALUATION, as in runs/demo@cold_start."
        ),
    ],
    expected: Annotated[
        bool,
        typer.Option(
            "--expected",
            help="Say instead whether each run lies where those of its recipe lie that came with "
            "turnwise; the exit code is 1 where a figure lies outside.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare finished runs on the same held-out tasks: paired difference, exact test, power."""
    from turnwise.evaluation.kept import read_played
    from turnwise.evaluation.paired import compare_all

    if expected:
        _compare_with_expected(runs, as_json)
        return
    if len(runs) < 2:
        raise ConfigError("give two runs or more to compare, as in: compare-runs runs/a runs/b")
    comparisons = compare_all([read_played(run) for run in runs])
    if as_json:
        print_json([asdict(comparison) for comparison in comparisons])
    else:
        from turnwise.commands.results import paired_table

        print_table(paired_table(comparisons))


def _compare_with_expected(runs: list[str], as_json: bool) -> None:
    from turnwise.commands.results import expected_table
    from turnwise.evaluation.expected import facts, places, read_expected
    from turnwise.storage.run_folder import RunFolder

    found, inside = {}, True
    for run in runs:
        folder = RunFolder.open(Path(run))
        expected = read_expected(folder.recipe().name)
        known = facts(folder)
        placed = places(folder, known, expected)
        found[run] = [asdict(one) | {"inside": one.inside} for one in placed]
        inside = inside and all(one.inside for one in placed)
        if not as_json:
            print_table(expected_table(run, known, expected, placed))
    if as_json:
        print_json(found)
    if not inside:
        raise typer.Exit(1)
