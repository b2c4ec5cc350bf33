"""The command line. Each command reads its arguments, calls one thing, and prints.

`--debug` anywhere shows tracebacks. Exit codes are in `failures.py`.
"""

import asyncio
import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from turnwise.commands.evaluating import AsJson, Overrides, compare_runs, evaluate
from turnwise.commands.failures import REFUSALS, exit_code, fail, first_error, full_memory, plainer
from turnwise.commands.printing import (
    console,
    print_json,
    print_line,
    print_table,
    terminal_display,
)
from turnwise.config import keys_that_end, load_recipe, recipe_keys
from turnwise.errors import ConfigError, TurnwiseError, located, own_place
from turnwise.wings import loaded, missing, wings

if TYPE_CHECKING:
    from turnwise.storage.run_folder import RunFolder

app = typer.Typer(
    help="Train language-model agents by reinforcement learning over whole trajectories.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Add --debug to any command to see tracebacks. Exit codes: 2 a mistake in what you "
    "gave, 3 the run stopped itself or the machine failed, 130 interrupted, 143 ended by SIGTERM, "
    "75 ended by SIGUSR1. After 130, 143 and 75 the run is saved and goes on with --resume.",
)
Run = Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")]


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"turnwise {version('turnwise')}")
        raise typer.Exit


@app.callback()
def turnwise(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version."),
    ] = False,
) -> None:
    """Train language-model agents by reinforcement learning over whole trajectories."""


@app.command()
def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe: a .toml file, or a name from `turnwise list`.")
    ] = None,
    overrides: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the new run; runs/<recipe's name> if not given.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with this run folder; settings of the machine may follow, such as "
            "cluster.learners=4."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Delete an earlier run in that folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train an agent: cold start, reinforcement learning, evaluation, report."""
    from turnwise.storage.moves import moved_recipe
    from turnwise.storage.run_folder import RunFolder
    from turnwise.training.start import prepared

    if recipe is None and resume is None:
        raise ConfigError("give either a recipe to start or --resume RUN to go on")
    if resume is not None:
        if run or overwrite or (recipe is not None and "=" not in recipe):
            raise ConfigError(
                "--resume goes on with the run as it is: give no recipe, --run or --overwrite, but "
                "settings of the machine if they change, such as cluster.learners=4"
            )
        folder = RunFolder.open(resume)
        loaded = moved_recipe(folder, [recipe, *(overrides or [])] if recipe is not None else [])
    else:
        loaded = load_recipe(str(recipe), overrides or [])
        folder = RunFolder.new(run or Path("runs") / loaded.name, overwrite)
    with _resumable(folder), prepared(loaded, folder, terminal_display()) as context:
        from turnwise.training.run import run as run_stages

        report = asyncio.run(run_stages(context))
    if as_json:
        print_json(report)
    else:
        from turnwise.commands.ending import tell

        tell(folder, report, str(recipe) if resume is None else f"{folder.path}/config.toml")


app.command()(evaluate)


@app.command()
def show(
    run: Run,
    step: Annotated[
        str | None, typer.Option(help="A step's number, or a name such as evaluation-trained.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of trajectories to show.")] = 3,
    outcome: Annotated[str | None, typer.Option(help="Only this outcome, such as success.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="As a table: a row for each token and its numbers.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw success by budget of all evaluations into this .png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show trajectories: their messages, and which tokens are trained; of evaluations also what
    they found."""
    from turnwise.commands.results import evaluation_tables, save_plot
    from turnwise.commands.terminal import choose_rows, show_rows, token_tables
    from turnwise.storage.moves import move_sentences
    from turnwise.storage.run_folder import RunFolder

    rows, name = choose_rows(run, step, outcome, count)
    if plot is not None:
        save_plot(run, plot)
    if as_json:
        print_json({"file": name, "trajectories": rows})
    elif tokens:
        for table in token_tables(run, rows):
            print_table(table)
    else:
        for table in evaluation_tables(run, name):
            print_table(table)
        show_rows(console, run, name, rows)
        for sentence in move_sentences(RunFolder.open(run)):
            print_line(sentence)


@app.command(name="list")
def list_(as_json: AsJson = False) -> None:
    """List what a recipe can name: recipes, environments, algorithms, engines, scaffolds."""
    from turnwise.commands.catalogue import catalogue
    from turnwise.commands.terminal import names_table

    names = catalogue()
    if as_json:
        print_json(names)
    else:
        print_table(names_table(names))


@app.command()
def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An algorithm, or a part of one, such as path/to/file.py:function; all algorithms "
            "if not given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the algorithms as a table of choices, or what one of them, or one part, is made of."""
    from turnwise.algorithms.registry import algorithm_names, describe, describe_parts, table
    from turnwise.commands.terminal import algorithm_table, algorithms_table, parts_table

    described: Any = table() if name is None else None
    is_algorithm = name in algorithm_names()
    if name is not None:
        described = describe(name) if is_algorithm else describe_parts(name)
    if as_json:
        print_json(described)
    elif name is None:
        print_table(algorithms_table(described))
    else:
        print_table((algorithm_table if is_algorithm else parts_table)(described))


app.command()(compare_runs)


def with_wings(*words: str) -> typer.Typer:
    """Add the command of a wing that the first word names; commands of all wings, which takes the
    import of all, where it names none of ours. Returns the application."""
    places, known = wings().commands(), getattr(get_command(app), "commands", {})
    wanted = [words[0]] if words and words[0] in places else []
    if not wanted and not (words and words[0] in known):
        wanted = sorted(places)
    for name in wanted:
        if name in known:
            continue
        command = loaded(places[name])
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns the errors a user should read into one line and an exit code.

    `arguments` default to those of the command line. Always raises SystemExit.
    """
    # What a terminal cannot show is written in plainer characters, and is no error.
    codecs.register_error("plainer", plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plainer")
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        words = [argument for argument in given if argument != "--debug"]
        for problem in wings().problems:
            print(f"turnwise: warning: {problem}", file=sys.stderr)
        _check_command(words)
        with_wings(*words)
        _check_options(words)
        app(words)
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as raised:
        error = first_error(raised)
        if debug:
            raise
        if memory := full_memory(error):
            fail(memory, 3)
        if isinstance(error, TurnwiseError | KeyboardInterrupt):
            fail(str(error) or "interrupted", exit_code(error))
        if not own_place(error):
            if isinstance(error, OSError) and error.errno in REFUSALS:
                fail(str(error), 3)
            raise  # a bug in turnwise
        fail(f"{located(error)}; --debug shows the traceback", 2)


def _check_command(words: list[str]) -> None:
    error = missing("command", words[0]) if words else None
    if error is not None:
        raise error


def _check_options(words: list[str]) -> None:
    """Raise ConfigError for an option that is none and is named as settings are, of a command that
    takes settings: it says how they are written."""
    commands: dict[str, Any] = getattr(get_command(app), "commands", {})
    command = commands.get(words[0]) if words else None
    if command is None or all(one.name != "overrides" for one in command.params):
        return
    known = {name for one in command.params for name in one.opts} | {"--help"}
    for option in [word.partition("=")[0] for word in words if word.startswith("--")]:
        key = option.removeprefix("--").replace("-", "_")
        keys = [one for one in recipe_keys() if one == key] or keys_that_end(key)
        if option not in known and keys:
            raise ConfigError(
                f"there is no option {option}; settings are written as KEY=VALUE: {', '.join(keys)}"
            )


@contextmanager
def _resumable(folder: "RunFolder") -> Iterator[None]:
    """Print how the run goes on when a signal ends it."""
    try:
        yield
    except KeyboardInterrupt as ended:
        how = f"go on with: turnwise train --resume {folder.path}"
        if not (folder.path / "config.toml").is_file():
            how = "the run had not begun"
        fail(f"{str(ended) or 'interrupted'}; {how}", exit_code(ended))
