"""What the pages have in common: tables, docstrings, the values that an annotation allows."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticUndefined

from turnwise.ranges import Range

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
PLAIN = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}


def attribute_docs(cls: type) -> dict[str, str]:
    """The strings that stand below the attributes of the class, and of those that it derives
    from."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith(("turnwise.", "tests.")):
            found |= _own_docs(base)
    return found


def _own_docs(cls: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    found = {}
    for line, after in itertools.pairwise(body):
        targets = getattr(line, "targets", None) or [getattr(line, "target", None)]
        text = after.value.value if _is_text(after) else None
        if text and len(targets) == 1 and isinstance(targets[0], ast.Name):
            found[targets[0].id] = " ".join(text.split())
    return found


def _is_text(line: ast.stmt) -> bool:
    value = getattr(line, "value", None)
    return (
        isinstance(line, ast.Expr)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    )


def paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def cell(text: str) -> str:
    """Text as a table's cell has it."""
    return text.replace("|", "\\|")


def table(rows: list[tuple[str, ...]], *heads: str) -> str:
    """A table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cell(each) for each in line)} |\n" for line in lines)


def allowed(annotation: Any, limits: list[Any]) -> str:
    """The values that a key may have."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    bounds = [
        f"{sign} {getattr(limit, name):g}"
        for limit in limits
        for name, sign in BOUNDS.items()
        if getattr(limit, name, None) is not None
    ]
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (dict, Mapping):
        return "table"
    if origin in (tuple, Sequence):
        count = f"{len(inner)}" if origin is tuple and inner[-1] is not Ellipsis else "list of"
        return f"{count} {allowed(inner[0], [])}s".replace("texts", "text").replace("`s", "`")
    if origin is typing.Annotated:
        return allowed(inner[0], [*_limits(inner[1:]), *limits])
    if inner:
        return " or ".join("none" if each is type(None) else allowed(each, []) for each in inner)
    return " ".join([PLAIN.get(annotation, getattr(annotation, "__name__", "any")), *bounds])


def _limits(metadata: Sequence[Any]) -> Iterator[Any]:
    """The bounds in the metadata of an annotation: pydantic's fields and ranges hold several."""
    for each in metadata:
        yield from each if isinstance(each, Range) else getattr(each, "metadata", [each])


def default_text(value: Any) -> str:
    if value is PydanticUndefined or value is dataclasses.MISSING:
        return "needed"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, bool) or value is None:
        return "none" if value is None else f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"
