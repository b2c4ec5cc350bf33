"""How commands print: tables that no terminal cuts, and JSON without NaN."""

import json
import math
from typing import Any

from rich.table import Table

from turnwise.monitor.display import Console, TerminalDisplay

console = Console()

NARROWEST = 100
"""Least width of a table, in columns: a narrower terminal breaks lines, and no word is cut."""


def print_line(text: str) -> None:
    """Print a line as it is, however long."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table at the terminal's width, but no narrower than its words need."""
    Console(width=max(console.width, NARROWEST)).print(table)


def print_json(value: Any) -> None:
    print(json.dumps(_without_nan(value), indent=2, default=str, allow_nan=False))


def _without_nan(value: Any) -> Any:
    """Replace NaN, which JSON lacks, by null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def terminal_display() -> TerminalDisplay:
    """Progress, on standard error."""
    return TerminalDisplay(Console(stderr=True))


def figure(value: float) -> str:
    """A number in a table, with four digits; a large one whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
