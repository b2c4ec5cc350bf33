"""The built-in parts of an algorithm and their functions, by name."""

from collections.abc import Callable
from typing import Any

from turnwise.algorithms.parts import PARTS, Part


def parts(choice: str) -> dict[str, Part]:
    """Every option of a choice."""
    return {name: PARTS[choice].get(name) for name in PARTS[choice].names()}


def functions(choice: str) -> dict[str, Callable[..., Any]]:
    """Every option's function."""
    return {name: part.function for name, part in parts(choice).items()}


def defaults(part: Part) -> dict[str, Any]:
    """The defaults of a part's numbers."""
    return {key: number.default for key, number in part.numbers.items()}
