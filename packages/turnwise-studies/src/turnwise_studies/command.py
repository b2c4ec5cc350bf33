"""The command `study`: a file's arms and seeds, from runs to a page."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from turnwise.commands.evaluating import AsJson
from turnwise.commands.failures import exit_code, fail
from turnwise.commands.printing import print_json, print_line, print_table, terminal_display

if TYPE_CHECKING:
    from turnwise_studies.results.figures import Figures

SMALLEST = "no verdict: the smallest form is no result"


def study(
    file: Annotated[
        str, typer.Argument(help="A study: a .toml file, or a name from `turnwise list`.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Changes to all runs, as in train.steps=10; on top of the file's."),
    ] = None,
    smallest: Annotated[
        bool,
        typer.Option("--smallest", help="The file's smallest form: it works within two minutes."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study; runs/<its name> if not given.")
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at the same time, at most; as the machine's cores and GPUs allow."
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the page, with plot and figures, into this folder of pages too."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train the arms of a study over its seeds, and say whether the claimed effect is there."""
    from turnwise_studies.study import failures, publish, run_study, study_command

    try:
        found, folder = run_study(
            file, overrides or [], smallest, out, parallel, terminal_display()
        )
    except KeyboardInterrupt as ended:
        again = study_command(file, overrides or [], smallest)
        options = {"--out": out, "--parallel": parallel, "--page": page}
        given = [f"{name} {shlex.quote(str(one))}" for name, one in options.items() if one]
        message = f"{str(ended) or 'interrupted'}; what is trained is kept, go on with: "
        fail(message + " ".join([again, *given]), exit_code(ended))
    written = folder / f"{found.name}.md" if page is None else publish(found, folder, page)
    if as_json:
        print_json(asdict(found))
        return
    from turnwise_studies.results.page import detectable_text, difference_text

    print_table(_table(found))
    for effect in found.effects:
        print_line(difference_text(effect, effect.metric in found.rates))
        print_line(f"{effect.verdict}: {effect.why}" if not found.smallest else SMALLEST)
        if seen := detectable_text(effect, found):
            print_line(seen)
    for line in failures(found, folder):
        print_line(line)
    print_line(f"{written} says more")


def _table(found: "Figures") -> Table:
    from turnwise_studies.results.measures import Measured
    from turnwise_studies.results.page import by_metric, measured_text

    seeds = [Column(f"seed {seed}", justify="right") for seed in found.seeds]
    table = Table("metric", "arm", *seeds, title=found.title)
    several = len(found.seeds) > 1
    if several:
        table.add_column("mean", justify="right")
    for name, arm, of in by_metric(found):
        rate = name in found.rates
        cells = [measured_text(one, rate) for one in of.by_seed.values()]
        mean = None if of.over_seeds is None else of.over_seeds.mean
        cells += [measured_text(Measured(mean), rate)] if several else []
        table.add_row(Text(name), Text(arm), *cells)
    return table
