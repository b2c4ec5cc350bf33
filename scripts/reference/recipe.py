"""recipe.md: every key of a recipe, a section for each kind of a choice."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.reference.text import allowed, attribute_docs, default_text, paragraph, table
from turnwise.config import Choice, Recipe, Section, choice_of, table_name
from turnwise.sandbox.settings import Limits, SandboxSettings


def recipe_page() -> str:
    """Every key of a recipe: its type, range, default and meaning."""
    text = (
        "# Recipe\n\nA recipe is a TOML file. Every key below may stand in it, and on the command "
        "line as `table.key=value`; a key that is not here is an error that names the nearest one. "
        "A table that is one of several kinds has a section for each: its settings are those of "
        "the kind that is chosen, and the value of the key that says the kind stands for the "
        'table, as in `engine = "vllm"`. Tables that need not be there (`evaluation.during_rl`, '
        "`monitor.mutual_information`, those of an algorithm's signals) are left out, or given the "
        "value `false`. `turnwise list` has the recipes that come with turnwise, the run folder's "
        "`config.toml` the recipe of a run with every value spelled out.\n\n"
    )
    text += key_table(Recipe)
    for key, field in Recipe.model_fields.items():
        text += tables_of(key, field)
        if key == "sandbox" and not choice_of(field)[0]:
            text += section_text(key, SandboxSettings) + section_text("sandbox.limits", Limits)
    # Kinds of a choice can have a table in common, as those of judges have their models.
    return "\n## ".join(dict.fromkeys(text.split("\n## ")))


def tables_of(name: str, field: FieldInfo) -> str:
    """A section for each kind that a table may be; nothing for a plain value."""
    kinds, choice = choice_of(field)
    table = table_name(name, field)
    return "".join(section_text(table, kind, chosen(kind, choice)) for kind in kinds)


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
        (f"`{key}`", allowed(annotation, limits), default_text(default), docs.get(key, ""))
        for key, annotation, limits, default in fields(cls)
    ]
    return table(rows, "key", "value", "default", "meaning") if rows else ""


def _default(field: FieldInfo) -> Any:
    """What stands on the page where nothing is given; what is made anew says so itself, or is an
    empty table."""
    if field.default_factory is None:
        return field.default
    said = field.json_schema_extra
    return said.get("default", {}) if isinstance(said, dict) else {}


def fields(cls: type) -> Iterator[tuple[str, Any, list[Any], Any]]:
    """Name, annotation, constraints and default of each plain key of a model or a dataclass."""
    if issubclass(cls, BaseModel):
        for key, field in cls.model_fields.items():
            if not choice_of(field)[0]:
                default = _default(field)
                yield key, field.annotation, list(field.metadata), default
    else:
        types = typing.get_type_hints(cls)
        for each in dataclasses.fields(cls):
            if not dataclasses.is_dataclass(types[each.name]):
                yield each.name, types[each.name], [], each.default
