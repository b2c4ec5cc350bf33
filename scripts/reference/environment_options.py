"""environment_options.md: the options of every environment, from the signature of its class."""

import inspect
import itertools
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from scripts.reference.text import SETTINGS, attribute_docs, paragraph, setting
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.environments.tasksets import TaskFile
from turnwise.options import Options


def options_page() -> str:
    """Every built-in environment with its options."""
    text = (
        "# Options of environments\n\nThey stand in a recipe as `environment.options`, and behind "
        f"the name for `turnwise environments`: `mathematics tasks.count=500`. {SETTINGS} An "
        "option that an environment does not have is an error that names the nearest one. Where "
        "`tasks` is one of several tables, its options are of one of them: what makes tasks, or "
        "`tasks.file` (text, needed), a file of yours, of which `tasks.heldout_share = 0.5` (0 to "
        "1) is held out. What environments are about is on [their pages](environments.md).\n"
    )
    told: dict[type, str] = {}
    for name, description in ENVIRONMENTS.descriptions().items():
        kind = ENVIRONMENTS.get(name)
        documented = paragraph(getattr(kind.__init__, "__doc__", ""))
        text += f"\n## {name}\n\n{description[0].upper()}{description[1:]}.\n\n"
        if lines := [
            line for parameter in _parameters(kind) for line in _lines(told, name, *parameter)
        ]:
            text += "".join(_on_one_line(lines))
            text += "" if re.match("Raises|$", documented) else f"\n{documented}\n"
    return text


def _on_one_line(lines: Iterable[str]) -> Iterator[str]:
    """Options without a meaning of their own, one after the other, share a line."""
    for is_told, group in itertools.groupby(lines, lambda line: ": " in line):
        found = list(group)
        plain = ", ".join(line.removeprefix("- ").rstrip() for line in found)
        yield "".join(found) if is_told else f"- {plain}\n"


def _parameters(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, annotation and default of each argument of the constructor."""
    for name, each in inspect.signature(kind, eval_str=True).parameters.items():
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            yield name, each.annotation, each.default


def _lines(
    told: dict[type, str], owner: str, name: str, annotation: Any, default: Any, meaning: str = ""
) -> Iterator[str]:
    """A line on a plain option; on a table of options one on each of them, in each kind of it, but
    for what is said of every file at the top. `told` has the tables by what has them first."""
    inner = typing.get_args(annotation) or (annotation,)
    kinds = [each for each in inner if inspect.isclass(each) and issubclass(each, Options)]
    if not kinds:
        yield setting(name, annotation, [], default, meaning)
    for kind in kinds:
        first = told.setdefault(kind, owner)
        if first != owner and kind is not TaskFile:
            yield f"- `{name}`, a table: as of [{first}](#{first}).\n"
            continue
        yield f"- `{name}`, a table: {paragraph(kind.__doc__)}\n"
        docs = attribute_docs(kind)
        defaults = inspect.signature(kind).parameters
        of_files = TaskFile.__annotations__ if issubclass(kind, TaskFile) else ()
        for key, each in typing.get_type_hints(kind, include_extras=True).items():
            if key not in of_files:
                option, told_of = f"{name}.{key}", docs.get(key, "")
                yield from _lines(told, owner, option, each, defaults[key].default, told_of)
