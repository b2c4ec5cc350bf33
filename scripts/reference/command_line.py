"""command_line.md: every command with its arguments and options."""

from collections.abc import Iterator
from typing import Any

import typer

from scripts.reference.text import table
from turnwise.commands.cli import with_wings


def command_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(with_wings())
    text = f"# Command line\n\n{group.help}\n\n{group.epilog}\n"
    for name, command in _commands(group):
        text += f"\n## turnwise {name}\n\n{' '.join((command.help or '').split())}\n\n"
        rows = [_option(each) for each in command.params if each.name != "help"]
        text += table(rows, "argument or option", "default", "meaning")
    return text


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, those of groups too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _option(each: Any) -> tuple[str, str, str]:
    is_option = each.param_type_name == "option"
    name = ", ".join(each.opts) if is_option else each.name.upper()
    default = each.default() if callable(each.default) else each.default
    shown = (
        "" if default in (None, False, ()) or "UNSET" in repr(default).upper() else f"`{default}`"
    )
    return f"`{name}`", shown, " ".join((getattr(each, "help", "") or "").split())
