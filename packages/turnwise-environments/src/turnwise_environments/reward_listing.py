"""The command that lists what a recipe can make a reward of."""

import inspect
import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from turnwise.commands.printing import print_json, print_table
from turnwise.rewards.parts import REWARD_PARTS, RewardPart


def rewards(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="A part, such as path/to/file.py:function, or an environment with its options, "
            "for what it reports; all built-in parts if not given."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the parts of rewards: what they are measured of, their range, options and meaning."""
    title, parts = _chosen(names or [])
    rows = [{"part": name, **described(part)} for name, part in parts.items()]
    if as_json:
        print_json(rows)
    else:
        print_table(parts_table(title, rows))


def _chosen(names: list[str]) -> tuple[str, Mapping[str, RewardPart]]:
    from turnwise.environments.base import Environment
    from turnwise.environments.registry import ENVIRONMENTS, make_environment
    from turnwise_environments.measuring import named_with_options

    if not names:
        return "parts", {name: REWARD_PARTS.get(name) for name in REWARD_PARTS.descriptions()}
    ((name, options),) = named_with_options(names)[:1]
    part = None if name in ENVIRONMENTS.descriptions() else REWARD_PARTS.get(name)
    kind = None if part is None else part.function
    if part is None or (isinstance(kind, type) and issubclass(kind, Environment)):
        spec = make_environment(name, options).spec
        return f"what {spec.name} reports, version {spec.version}", spec.parts
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
        title=title,
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
