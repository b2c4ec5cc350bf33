"""algorithm_parts.md: every algorithm as its difference from GRPO, every part with its numbers."""

import math
from collections.abc import Mapping
from typing import Any

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
    for name, row in zip(names, map(row_of, names), strict=True):
        differs = f"; otherwise than there: {row.differs}" if row.differs else ""
        text += f"- `{name}` ({row.source}): {_difference(describe(name), grpo)}{differs}\n"
    for choice, parts in PARTS.items():
        text += f"\n## {choice}\n\n"
        text += "".join(_part(choice, name) for name in parts.descriptions())
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


def _part(choice: str, name: str) -> str:
    """A line on a part."""
    part = PARTS[choice].get(name)
    numbers = [f"`{key} = {_number(value.default)}`" for key, value in part.numbers.items()]
    return (
        f"- `{name}`: {'; '.join([part.description, *([', '.join(numbers)] if numbers else [])])}\n"
    )


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == math.inf:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
