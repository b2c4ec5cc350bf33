"""Commands that make what others train on: bugs in a repository, the embedded model.

Not here: how they are made (`environments/repair`, `synthesis`).
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.printing import print_line, terminal_display
from turnwise.errors import ConfigError


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
    from turnwise.environments.repair.injection import inject as injected
    from turnwise.sandbox.sandbox import Sandbox
    from turnwise.sandbox.settings import Limits, SandboxSettings

    if runner not in ("plain", "pytest"):
        raise ConfigError(f"--runner is plain or pytest, not {runner!r}")
    if output.exists() or output.suffix != ".jsonl":
        raise ConfigError(f"{output}: give a new file whose name ends with .jsonl")
    limits = Limits(seconds=seconds, cpu_seconds=seconds)
    with Sandbox(SandboxSettings(limits=limits, packages=tuple(packages or ()))) as sandbox:
        records = list(injected(repository, sandbox, runner, count))
    output.write_text("".join(json.dumps(record) + "\n" for record in records))
    message = f"{len(records)} bugs in {output}: environment.options.tasks.file"
    print_line(message)


def build_tiny(
    target: Annotated[Path, typer.Argument(help="An empty folder for the checkpoint.")],
    seed: Annotated[int, typer.Option(help="Seed of the build.")] = 0,
    stages: Annotated[
        str,
        typer.Option(
            help="Any of read, cards, tags, words, search; the shipped model has no search."
        ),
    ] = "read,cards,tags,words",
    width: Annotated[int, typer.Option(help="Of the layers, a multiple of 32.")] = 192,
    layers: Annotated[int, typer.Option(help="256 and 6 make 5 million parameters.")] = 4,
) -> None:
    """Make the embedded model `tiny` from scratch: tokenizer, pretraining tasks, checkpoint (over
    an hour; a larger model takes longer)."""
    from turnwise.threads import configure_threads

    configure_threads(2)
    from turnwise.environments.search.corpus import standard_library
    from turnwise.models.tiny import Shape
    from turnwise.synthesis.tiny import build

    shape = Shape(width, layers)
    build(target, standard_library(), seed, terminal_display(), stages.split(","), shape=shape)
