"""How benchmarks print their figures."""

from collections.abc import Sequence
from typing import Any


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of rows that have the same keys; lists are not shown."""
    keys = [key for key, value in rows[0].items() if not isinstance(value, list)]
    lines = [keys, ["---"] * len(keys), *([str(row[key]) for key in keys] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
