"""algorithm_parts.md: every algorithm as its difference from GRPO, every part with its numbers."""

import math
from collections.abc import Mapping
from typing import Any

from scripts.reference.text import table
from turnwise.algorithms.parts import PARTS
from turnwise.algorithms.registry import algorithm_names, describe, row_of


def parts_page() -> str:
    """Every algorithm as its difference from GRPO, and every part with its numbers."""
    text = (
        "# Algorithms and parts\n\nAn algorithm is a row of parts; a recipe names one in "
        "`algorithm.name` and may replace any part or number beside it. What the choices are is "
        "in [Algorithms](algorithms.md). `turnwise algorithms NAME` prints one row or part.\n\n"
        "## Algorithms\n\nWhat is not said is as in `grpo`.\n\n"
    )
    grpo, names = describe("grpo"), algorithm_names()
    rows = [
        (f"`{name}`", _difference(describe(name), grpo), row.source, row.differs)
        for name, row in zip(names, map(row_of, names), strict=True)
    ]
    text += table(rows, "name", "made of", "source", "otherwise than in its source")
    for choice, parts in PARTS.items():
        text += f"\n## {choice}\n\n"
        rows = [_part(choice, name) for name in parts.descriptions()]
        text += table(rows, "part", "what it does", "numbers")
    return text


def _difference(row: Mapping[str, Any], grpo: Mapping[str, Any]) -> str:
    """The parts, numbers and coefficients of a row that GRPO's has not."""
    found, is_grpo = [], row["name"] == grpo["name"]
    for choice, part in row["parts"].items():
        if is_grpo or part["part"] != grpo["parts"][choice]["part"]:
            found.append(f"{choice} `{part['part']}`")
        standard = PARTS[choice].get(part["part"]).numbers
        changed = {
            key: value
            for key, value in part["numbers"].items()
            if (math.inf if value is None else value) != standard[key].default
        }
        found += [f"{key} {_number(value)}" for key, value in changed.items()]
    flags = [key for key in row if isinstance(row[key], bool | float) and row[key] != grpo[key]]
    return ", ".join([*found, *(f"{key} {_number(row[key])}" for key in flags)])


def _part(choice: str, name: str) -> tuple[str, str, str]:
    """The row of a part."""
    part = PARTS[choice].get(name)
    numbers = (f"`{key}` = {_number(value.default)}" for key, value in part.numbers.items())
    return f"`{name}`", part.description, ", ".join(numbers)


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == math.inf:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
