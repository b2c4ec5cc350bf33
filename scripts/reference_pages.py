#!/usr/bin/env python3
"""Writes the pages of docs/reference that are made from the code: `make reference`.

recipe.md has every key of a recipe, api.md every public name, command_line.md every command and
algorithm_parts.md every algorithm and part, each with the words of its docstring. A test makes the
pages again and compares (tests/test_reference_pages.py). Not here: the prose of the other pages.
"""

import ast
import dataclasses
import enum
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import turnwise
from turnwise.algorithms.parts import PARTS
from turnwise.algorithms.registry import describe, describe_parts
from turnwise.algorithms.rows import ALGORITHMS
from turnwise.commands.cli import app
from turnwise.config import Choice, Recipe, Section, choice_of
from turnwise.sandbox.settings import Limits, SandboxSettings

FOLDER = Path(__file__).resolve().parents[1] / "docs/reference"
MADE = (
    "<!-- Made by scripts/reference_pages.py: change the docstrings, then `make reference`. -->\n\n"
)
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
PLAIN = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}
GROUPS = {
    "Runs": "load_recipe train resume evaluate open_run Run Recipe",
    "The steps of RL": "build make_environment Components sample_groups make_learner estimate "
    "load_weights close PolicyLearner",
    "An environment of one's own": "Environment tool ToolError Task Action ToolCall Observation "
    "Step Verdict",
    "Records": "Tokens Source Trajectory Group Outcome",
}
"""The public names, in the order in which one meets them."""


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


# The recipe


def recipe_page() -> str:
    """Every key of a recipe: its type, range, default and meaning."""
    text = (
        "# Recipe\n\nA recipe is a TOML file. Every key below may stand in it, and on the command "
        "line as `table.key=value`; a key that is not here is an error that names the nearest one. "
        "A table that is one of several kinds has a section for each: its settings are those of "
        "the kind that is chosen, and the value of the key that says the kind stands for the "
        'table, as in `engine = "vllm"`. Tables that need not be there (`evaluation.during_rl`, '
        "`monitor.mutual_information`, those of an algorithm's signals) are left out, or given the "
        "value `false`. `turnwise list` has the recipes that come with turnwise, the run "
        "folder's `config.toml` the recipe of a run with every value spelled out.\n\n"
    )
    text += key_table(Recipe)
    for key, field in Recipe.model_fields.items():
        text += tables_of(key, field)
        if key == "sandbox" and not choice_of(field)[0]:
            text += section_text(key, SandboxSettings) + section_text("sandbox.limits", Limits)
    return text


def tables_of(name: str, field: FieldInfo) -> str:
    """A section for each kind that a table may be; nothing for a plain value."""
    kinds, choice = choice_of(field)
    return "".join(section_text(name, kind, chosen(kind, choice)) for kind in kinds)


def section_text(name: str, cls: type, when: str = "") -> str:
    """The heading, the description and the keys of a table, then those of the tables in it."""
    text = f"\n## [{name}]{when}\n\n{paragraph(cls.__doc__)}\n\n{key_table(cls)}"
    for key, field in getattr(cls, "model_fields", {}).items():
        text += tables_of(f"{name}.{key}", field)
    return text


def chosen(kind: type[Section], choice: Choice | None) -> str:
    """How a recipe says that a table is of this kind."""
    if choice is None:
        return ""
    if names := choice.names(kind):
        return f" with {choice.key} = {names}".replace("'", '"')
    if choice.key not in kind.model_fields:
        return f" without {choice.key}"
    return f" with {'another ' if choice.key == 'name' else ''}{choice.key}"


def key_table(cls: type) -> str:
    """The keys of a section as a table."""
    docs = attribute_docs(cls)
    rows = [
        (f"`{key}`", allowed(annotation, limits), _default(default), docs.get(key, ""))
        for key, annotation, limits, default in fields(cls)
    ]
    return table(rows, "key", "value", "default", "meaning") if rows else ""


def fields(cls: type) -> Iterator[tuple[str, Any, list[Any], Any]]:
    """Name, annotation, constraints and default of each plain key of a model or a dataclass."""
    if issubclass(cls, BaseModel):
        for key, field in cls.model_fields.items():
            if not choice_of(field)[0]:
                default = field.default if field.default_factory is None else {}
                yield key, field.annotation, list(field.metadata), default
    else:
        types = typing.get_type_hints(cls)
        for each in dataclasses.fields(cls):
            if not dataclasses.is_dataclass(types[each.name]):
                yield each.name, types[each.name], [], each.default


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
    if origin is dict:
        return "table"
    if origin is tuple:
        count = "list of" if inner[-1] is Ellipsis else f"{len(inner)}"
        return f"{count} {allowed(inner[0], [])}s".replace("texts", "text")
    if origin is typing.Annotated:
        own = [limit for each in inner[1:] for limit in getattr(each, "metadata", [each])]
        return allowed(inner[0], [*own, *limits])
    if inner:
        return " or ".join("none" if each is type(None) else allowed(each, []) for each in inner)
    return " ".join([PLAIN.get(annotation, getattr(annotation, "__name__", "any")), *bounds])


def _default(value: Any) -> str:
    if value is PydanticUndefined or value is dataclasses.MISSING:
        return "needed"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, bool) or value is None:
        return "none" if value is None else f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


# The public API


def api_page() -> str:
    """Every public name: its signature, its docstring, its members."""
    text = (
        "# Public API\n\n`import turnwise` offers these names, and they are all of the public API; "
        f"parts of one's own build on {', '.join(f'`{name}`' for name in turnwise.SEAMS)} besides "
        "(`turnwise.SEAMS`). What is imported from anywhere else may change. Importing loads no "
        "torch. Functions may be called in a notebook's cell, where an event loop runs already, "
        "without `await`. Ctrl-C ends what they do, and `train` saves first.\n\nIn the examples "
        "`recipe` is a recipe's file and `path` a folder; one example goes on with what another "
        "one made.\n"
    )
    for group, names in GROUPS.items():
        text += f"\n## {group}\n"
        text += "".join(name_text(name, getattr(turnwise, name)) for name in names.split())
    return text


def name_text(name: str, value: Any) -> str:
    """The entry of a public name."""
    text = f"\n### {name}\n\n"
    if not inspect.isclass(value):
        text += f"```python\n{name}{signature(value)}\n```\n\n"
    text += docstring(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not issubclass(value, BaseModel):
        members = [f"- {each}\n" for each in member_texts(value)]
        text += "\n" + "".join(members) if members else ""
    return text


def signature(function: Callable[..., Any]) -> str:
    """A signature as one reads it, on several lines where one is too long."""
    text = short(str(inspect.signature(function))).replace("<factory>", "...")
    if len(text) <= 80:
        return text
    inside, _, result = text[1:].rpartition(")")
    lines, depth = [""], 0
    for character in inside:
        depth += (character in "[(") - (character in "])")
        if character == "," and not depth:
            lines.append("")
        else:
            lines[-1] += character
    return "(\n" + "".join(f"    {line.strip()},\n" for line in lines) + f"){result}"


def short(text: str) -> str:
    """Annotations without the modules of their names, and without quotes around them."""
    text = re.sub(r"""(^|: |-> )(['"])(.*?)\2""", r"\1\3", text)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", text)


def docstring(text: str) -> str:
    """A docstring in Markdown: paragraphs, arguments as a list, examples in blocks."""
    prose, example, rest = re.sub(r"(?m)^>>>", "\n>>>", text, count=1).partition("\n>>>")
    shown = [_paragraphs(each) for each in prose.strip("\n").split("\n\n")]
    if example:
        shown.append(f"```pycon\n>>>{rest.rstrip()}\n```")
    return "\n\n".join(shown) + "\n"


def _paragraphs(part: str) -> str:
    if part.startswith("Args:"):
        items = re.split(r"\n    (?=\w+: )", part)[1:]
        return "\n".join(f"- `{' '.join(each.split())}".replace(": ", "`: ", 1) for each in items)
    if part.startswith("    "):
        return f"```text\n{textwrap.dedent(part)}\n```"
    return " ".join(part.split())


def member_texts(cls: type) -> Iterator[str]:
    """A line on each public field, property and method that the class itself has."""
    docs = attribute_docs(cls)
    types = inspect.get_annotations(cls)
    for name in [each for each in types if not each.startswith("_")]:
        kind = short(inspect.formatannotation(types[name]))
        yield f"`{name}: {kind}`" + (f": {docs[name]}" if name in docs else "")
    for name, member in vars(cls).items():
        if name.startswith("_") or name in types:
            continue
        if isinstance(member, enum.Enum):
            yield f"`{name} = {member.value!r}`" + (f": {docs[name]}" if name in docs else "")
        elif isinstance(member, property):
            yield f"`{name}`: {paragraph(member.__doc__)}"
        elif inspect.isfunction(member) or isinstance(member, classmethod):
            called = str(signature(getattr(cls, name))).replace("\n", "").replace("    ", " ")
            called = re.sub(r"^\( ?self(, ?)?", "(", called).replace(",)", ")")
            yield f"`{name}{called}`: {paragraph(member.__doc__)}"


# The command line


def command_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    text = f"# Command line\n\n{group.help}\n\n{group.epilog}\n"
    for name, command in group.commands.items():
        text += f"\n## turnwise {name}\n\n{' '.join((command.help or '').split())}\n\n"
        rows = [_option(each) for each in command.params if each.name != "help"]
        text += table(rows, "argument or option", "default", "meaning")
    return text


def _option(each: Any) -> tuple[str, str, str]:
    is_option = each.param_type_name == "option"
    name = ", ".join(each.opts) if is_option else each.name.upper()
    default = each.default() if callable(each.default) else each.default
    shown = (
        "" if default in (None, False, ()) or "UNSET" in repr(default).upper() else f"`{default}`"
    )
    return f"`{name}`", shown, " ".join((getattr(each, "help", "") or "").split())


# Algorithms and their parts


def parts_page() -> str:
    """Every algorithm as its difference from GRPO, and every part with its numbers."""
    text = (
        "# Algorithms and parts\n\nAn algorithm is a row of parts; a recipe names one in "
        "`algorithm.name` and may replace any part or number beside it. What the choices are is "
        "in [Algorithms](algorithms.md). `turnwise algorithms NAME` prints one row or part.\n\n"
        "## Algorithms\n\nWhat is not said is as in `grpo`.\n\n"
    )
    grpo = describe("grpo")
    rows = [
        (f"`{name}`", _difference(describe(name), grpo), describe(name)["source"])
        for name in ALGORITHMS
    ]
    text += table(rows, "name", "made of", "source")
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
        standard = _described(choice, part["part"])["numbers"]
        changed = {key: value for key, value in part["numbers"].items() if standard[key] != value}
        found += [f"{key} {_number(value)}" for key, value in changed.items()]
    flags = [key for key in row if isinstance(row[key], bool | float) and row[key] != grpo[key]]
    return ", ".join([*found, *(f"{key} {_number(row[key])}" for key in flags)])


def _part(choice: str, name: str) -> tuple[str, str, str]:
    """The row of a part."""
    part = _described(choice, name)
    numbers = ", ".join(f"`{key}` = {_number(value)}" for key, value in part["numbers"].items())
    return f"`{name}`", part["description"], numbers


def _described(choice: str, name: str) -> Mapping[str, Any]:
    return next(each for each in describe_parts(name) if each["choice"] == choice)


def _number(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


PAGES = {
    "recipe.md": recipe_page,
    "api.md": api_page,
    "command_line.md": command_page,
    "algorithm_parts.md": parts_page,
}


def main() -> None:
    """Write them."""
    for name, make in PAGES.items():
        (FOLDER / name).write_text(MADE + make())


if __name__ == "__main__":
    main()
