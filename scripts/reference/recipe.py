"""recipe.md: every key of a recipe, a section for each kind of a choice."""

import dataclasses
import itertools
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.reference.text import SETTINGS, attribute_docs, paragraph, setting
from turnwise.config import Choice, Recipe, Section, choice_of, table_name
from turnwise.config.loading import whole_recipe
from turnwise.config.section import IS_MODEL, IS_PATH
from turnwise.sandbox.settings import Limits, SandboxSettings
from turnwise.wings import wings


def recipe_page() -> str:
    """Every key of a recipe: its type, range, default and meaning."""
    text = (
        "# Recipe\n\nA recipe is a TOML file. Every key below may stand in it, and on the command "
        "line as `table.key=value`; a key that is not here is an error that names the nearest one. "
        f"{SETTINGS} A table that is one of several kinds has a section for each, after one for "
        "what several have alike; the value of the key that says the kind may stand for the table, "
        'as in `engine = "vllm"` and `scaffold = "react"`. Tables that need not be there '
        "(`evaluation.during_rl`, `monitor.mutual_information`, those of an algorithm's signals) "
        f"are left out, or `false`. Wings bring {_of_wings()}.\n\n"
    )
    text += "".join(settings(Recipe))
    for key, field in whole_recipe().model_fields.items():
        text += tables_of(key, field)
        if key == "sandbox" and not choice_of(field)[0]:
            text += section_text(key, SandboxSettings) + section_text("sandbox.limits", Limits)
    return "\n## ".join(_once(text.split("\n## ")))


def _once(sections: Sequence[str]) -> Iterator[str]:
    """The sections, each once, though kinds of a choice have a table in common, as those of judges
    their models; one that says what another one says names it, for some of its keys too."""
    said: dict[str, str] = {}
    keys: dict[str, str] = {}
    same = ("", "")
    for section in dict.fromkeys(sections):
        title, _, text = section.partition("\n\n")
        first = said.setdefault(text, title)
        if first == title:
            yield f"{title}\n\n{''.join(_lines_once(text, title, keys))}"
        elif not (same[0] and title.startswith(same[0]) and first.startswith(same[1])):
            yield f"{title}\n\nAs {first}.\n"
            same = title, first


def _lines_once(text: str, title: str, keys: dict[str, str]) -> Iterator[str]:
    """The lines of a section; of two or more keys in a row that an earlier one has, their names."""
    for first, lines in itertools.groupby(text.splitlines(True), lambda line: keys.get(line, "")):
        found = list(lines)
        if first and len(found) > 1:
            names = ", ".join(f"`{line[3:].partition(' ')[0].strip('`')}`" for line in found)
            yield f"- {names}: as in {first}.\n"
        else:
            yield from found
            keys.update({line: title for line in found if line.startswith("- ") and not first})


def _of_wings() -> str:
    """The sections of wings, each with what is installed for it."""
    places = {name: wing for wing in wings().usable for name in wings().usable[wing].settings}
    return ", ".join(f"{_table(name)} (`turnwise[{places[name]}]`)" for name in sorted(places))


def _table(name: str) -> str:
    section, _, kind = name.partition(".")
    return f'`{section} = "{kind}"`' if kind else f"`[{section}]`"


def tables_of(name: str, field: FieldInfo) -> str:
    """A section for each kind that a table may be; nothing for a plain value."""
    kinds, choice = choice_of(field)
    table = table_name(name, field)
    text, common = _common(table, {chosen(kind, choice): kind for kind in kinds})
    return text + "".join(section_text(table, kind, chosen(kind, choice), common) for kind in kinds)


def _common(name: str, kinds: Mapping[str, type]) -> tuple[str, Collection[str]]:
    """A section for the keys that several kinds of a table have alike, and these keys' lines."""
    found: dict[str, list[str]] = {}
    for when, kind in kinds.items():
        for line in settings(kind):
            found.setdefault(line, []).append(when.strip())
    shared: dict[tuple[str, ...], str] = {}
    for line, having in found.items():
        if len(having) > 1:
            shared[*having] = shared.get((*having,), "") + line
    if not shared:
        return "", ()
    parts = [
        f"Alike {'in all' if len(having) == len(kinds) else ', '.join(having)}:\n\n{lines}"
        for having, lines in shared.items()
    ]
    return f"\n## [{name}]\n\n" + "\n".join(parts), "".join(shared.values()).splitlines(True)


def section_text(name: str, cls: type, when: str = "", common: Collection[str] = ()) -> str:
    """The heading, the description and the keys of a table but for those that are said before,
    then those of the tables in it."""
    text = f"\n## [{name}]{when}\n\n{paragraph(cls.__doc__)}\n"
    own = "".join(line for line in settings(cls) if line not in common)
    text += f"\n{own}" if own else ""
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


def settings(cls: type) -> list[str]:
    """A line on each key of a section."""
    docs = attribute_docs(cls)
    return [setting(key, *described, docs.get(key, "")) for key, *described in fields(cls)]


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
                marks = [one for one in field.metadata if one not in (IS_PATH, IS_MODEL)]
                yield key, field.annotation, marks, default
    else:
        types = typing.get_type_hints(cls)
        for each in dataclasses.fields(cls):
            if not dataclasses.is_dataclass(types[each.name]):
                yield each.name, types[each.name], [], each.default
