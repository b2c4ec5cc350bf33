"""The command `audit`."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.evaluating import AsJson
from turnwise.commands.failures import exit_code, fail
from turnwise.commands.printing import terminal_display
from turnwise.errors import ConfigError


def audit(
    words: Annotated[
        list[str],
        typer.Argument(
            help="An environment's name, or path/to/file.py:Class, then its options as key=value."
        ),
    ],
    tasks: Annotated[int, typer.Option(min=1, help="Most tasks to play.")] = 64,
    seed: Annotated[int, typer.Option(help="Another seed is another audit.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=1, help="Most seconds that it takes; episodes begin in 70% of it.")
    ] = 170,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep what is found in this file; an audit that it holds goes on."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the page, as Markdown.")] = None,
    as_json: AsJson = False,
) -> None:
    """Audit an environment before training on it: attacks on its verifier. Needs no model."""
    from turnwise_environments.commands import named_with_options
    from turnwise_trust.audit.process import AuditStopped, audited_apart

    named = named_with_options(words)
    if len(named) != 1:
        raise ConfigError("name one environment, then its options as key=value")
    ((name, options),) = named
    try:
        found = audited_apart(name, options, tasks, seed, seconds, terminal_display(), keep)
    except AuditStopped as stopped:
        stopped.page.tell(page, as_json)
        fail(str(stopped), exit_code(stopped))
    found.tell(page, as_json)
    if found.failed:
        raise typer.Exit(1)
