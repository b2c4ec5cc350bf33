"""The command that puts bugs into a copy of a repository, as tasks of the environment `repair`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.printing import print_line
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
    from turnwise.sandbox.settings import Limits, SandboxSettings
    from turnwise_environments.repair.injection import inject as injected
    from turnwise_sandbox.sandbox import Sandbox

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
