"""environment_options.md: the options of every environment, from the signature of its class."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

from scripts.reference.text import allowed, attribute_docs, default_text, paragraph, table
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.options import Options


def options_page() -> str:
    """Every built-in environment with its options."""
    text = (
        "# Options of environments\n\nThey stand in a recipe as `environment.options`, and behind "
        "the name for `turnwise environments`: `mathematics tasks.count=500`. An option that an "
        "environment does not have is an error that names the nearest one. Where `tasks` is one of "
        "several tables, its options are of one of them: either what makes tasks, or a file of "
        "yours. What the environments are about is on [their pages](environments.md).\n"
    )
    for name, description in ENVIRONMENTS.descriptions().items():
        kind = ENVIRONMENTS.get(name)
        documented = paragraph(getattr(kind.__init__, "__doc__", ""))
        text += f"\n## {name}\n\n{description[0].upper()}{description[1:]}.\n\n"
        if rows := [row for parameter in _parameters(kind) for row in _rows(*parameter)]:
            text += table(rows, "option", "value", "default", "meaning")
            text += "" if documented.startswith("Raises") else f"\n{documented}\n"
    return text


def _parameters(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, annotation and default of each argument of the constructor."""
    for name, each in inspect.signature(kind, eval_str=True).parameters.items():
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            yield name, each.annotation, each.default


def _rows(name: str, annotation: Any, default: Any) -> Iterator[tuple[str, ...]]:
    """A row for a plain option; for a table of options one for each of them, in each kind of it."""
    inner = typing.get_args(annotation) or (annotation,)
    kinds = [each for each in inner if inspect.isclass(each) and issubclass(each, Options)]
    if not kinds:
        value = "needed" if default is inspect.Parameter.empty else default_text(default)
        yield f"`{name}`", allowed(annotation, []), value, ""
    for kind in kinds:
        yield f"`{name}`", "table", "", paragraph(kind.__doc__)
        docs = attribute_docs(kind)
        defaults = inspect.signature(kind).parameters
        for key, each in typing.get_type_hints(kind, include_extras=True).items():
            for *row, meaning in _rows(f"{name}.{key}", each, defaults[key].default):
                yield *row, meaning or docs.get(key, "")
