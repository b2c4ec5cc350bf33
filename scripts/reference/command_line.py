"""command_line.md: every command with its arguments and options."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer

from turnwise.commands.cli import with_wings
from turnwise.wings import wings

MANY = 3
"""Commands from which on an option that they have alike is said once, at the top."""


def command_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(with_wings())
    options = {
        (name, command): [_option(each) for each in command.params if each.name != "help"]
        for name, command in _commands(group)
    }
    counts = Counter(line for lines in options.values() for line in lines)
    alike = [line for line, count in counts.items() if count >= MANY]
    text = f"# Command line\n\n{group.help}\n\n{group.epilog} What several commands have:\n\n"
    text += "".join(alike)
    for (name, command), lines in options.items():
        text += f"\n## turnwise {name}\n\n{' '.join((command.help or '').split())}\n\n"
        text += "".join(
            f"{line.split(':')[0].strip()}\n" if line in alike else line for line in lines
        )
    return text


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, those of groups too."""
    places = sorted(wings().commands())
    for name, command in sorted(
        group.commands.items(), key=lambda one: places.index(one[0]) if one[0] in places else -1
    ):
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _option(each: Any) -> str:
    is_option = each.param_type_name == "option"
    name = ", ".join(each.opts) if is_option else each.name.upper()
    default = each.default() if callable(each.default) else each.default
    is_shown = default not in (None, False, ()) and "UNSET" not in repr(default).upper()
    meaning = " ".join((getattr(each, "help", "") or "").split())
    return f"- `{name}`{f' (`{default}`)' if is_shown else ''}: {meaning}\n"
