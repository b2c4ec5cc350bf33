"""What the pages have in common: lines on settings, docstrings, annotations."""

import ast
import dataclasses
import inspect
import itertools
import re
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
        if base.__module__.startswith(("turnwise.", "turnwise_", "tests.")):
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


SETTINGS = (
    "Each stands with its default, whose type is its own where none is said; that a number is at "
    "least 0, or at least 1, is left out."
)


def setting(key: str, annotation: Any, limits: list[Any], default: Any, meaning: str = "") -> str:
    """A line on a setting: its default and the values that it may have, if that does not say."""
    values = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()
    every = set(_listed(annotation))
    one_value = len(values) == 1
    if one_value:
        default, notes = values[0], ["needed"] if _is_needed(default) else []
    else:
        kind = allowed(annotation, limits)
        if isinstance(default, int | float):
            kind = re.sub("^(integer|number|true or false)(?! or )( |$)(≥ [01]$)?", "", kind)
        elif isinstance(default, str | dict) and kind in ("text", "table"):
            kind = ""
        notes = [kind] if kind else []
        notes += ["needed"] if _is_needed(default) else []
    if isinstance(default, tuple) and every and set(default) == every:
        notes, default = [*notes, "all by default"], None
    shown = "" if _is_needed(default) or default is None else f" = {default_text(default)[1:-1]}"
    said = f" ({', '.join(notes)})" if notes else ""
    return f"- `{key}{shown}`{said}{f': {meaning}' if meaning else ''}\n"


def _listed(annotation: Any) -> tuple[Any, ...]:
    """The values of which there may be a list."""
    inner = typing.get_args(annotation)[:1]
    is_list = typing.get_origin(annotation) in (tuple, Sequence)
    return typing.get_args(inner[0]) if inner and is_list else ()


def _is_needed(default: Any) -> bool:
    return default in (PydanticUndefined, dataclasses.MISSING, inspect.Parameter.empty)


def allowed(annotation: Any, limits: list[Any]) -> str:
    """The values that a key may have."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    ends = {
        name: f"{getattr(limit, name):g}"
        for limit in limits
        for name in BOUNDS
        if getattr(limit, name, None) is not None
    }
    bounds = [f"{BOUNDS[name]} {end}" for name, end in ends.items()]
    if ends.keys() == {"ge", "le"}:
        bounds = [f"{ends['ge']} to {ends['le']}"]
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (dict, Mapping):
        return "table"
    if origin in (tuple, Sequence):
        count = f"{len(inner)}" if origin is tuple and inner[-1] is not Ellipsis else "list of"
        return f"{count} {re.sub(r'(?<!text)(?<!`)$', 's', allowed(inner[0], []))}"
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
        text = f"{value:g}"
        return f"`{text if set(text) & set('.en') else f'{text}.0'}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"
