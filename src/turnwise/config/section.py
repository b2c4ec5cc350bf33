"""Sections of a recipe, and choices: tables that are one of several kinds of section.

The settings of a choice stand in the kind that they belong to, so that what cannot go together
cannot be written.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from turnwise.conflicts import Claim


class Section(BaseModel):
    """A part of a recipe: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _of_its_name(cls, given: Any) -> Any:
        # A word stands for a table with that name and nothing else: scaffold = "native".
        return {"name": given} if isinstance(given, str) and "name" in cls.model_fields else given

    def claims(self) -> Iterator[Claim]:
        """The needs of its settings and what they deny others; none unless a section says so."""
        yield from ()

    def all_claims(self) -> Iterator[Claim]:
        """Its claims, then those of the sections in it."""
        yield from self.claims()
        for name in type(self).model_fields:
            value = getattr(self, name)
            for one in value.values() if isinstance(value, dict) else (value,):
                if isinstance(one, Section):
                    yield from one.all_claims()

    def with_texts(self, mark: str, change: Callable[[str], str]) -> Self:
        """The section, and those in it, with the texts changed whose fields have a mark."""
        changes: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if isinstance(value, Section):
                changes[name] = value.with_texts(mark, change)
            elif is_named(field):
                changes[name] = {key: one.with_texts(mark, change) for key, one in value.items()}
            elif mark in field.metadata and isinstance(value, dict):
                changes[name] = {key: change(one) for key, one in value.items()}
            elif mark in field.metadata and isinstance(value, str):
                changes[name] = change(value)
            elif isinstance(value, tuple) and mark in getattr(
                next(iter(get_args(field.annotation)), None), "__metadata__", ()
            ):
                changes[name] = tuple(map(change, value))
        return self.model_copy(update=changes)


IS_PATH, IS_MODEL = "a path", "a model"
"""Marks, in a field's annotation, of a path, and of a model's folder or name, which a run folder
keeps whole: `Annotated[str, IS_PATH]`."""

Kinds = Sequence[type[Section]]
"""The kinds of section that a table may be, in the order in which they are tried."""


@dataclass(frozen=True)
class Choice:
    """Says, in a field's annotation, by which key the kind of a table is known.

    A kind fits a table if its field of that name is a Literal that has the key's value, or takes
    any value and the table has the key; or if it has no such field and the table does not have the
    key either. A table may be written as the key's value alone. Example:
    `Annotated[SeparateCritic | ValueHead, Choice("kind")]`.
    """

    key: str

    def kind(self, kinds: Kinds, values: Mapping[str, Any]) -> type[Section] | None:
        """The first kind that fits a table; None if there is none."""
        return next((kind for kind in kinds if self._fits(kind, values)), None)

    def names(self, kind: type[Section]) -> str:
        """The values of the key that a kind is for, as "'off' or 'warn'"; empty for any value."""
        field = kind.model_fields.get(self.key)
        literal = field is not None and get_origin(field.annotation) is Literal
        return " or ".join(map(repr, get_args(field.annotation))) if field and literal else ""

    def _fits(self, kind: type[Section], values: Mapping[str, Any]) -> bool:
        field = kind.model_fields.get(self.key)
        if field is None:
            return self.key not in values
        if get_origin(field.annotation) is Literal:
            return values.get(self.key, field.default) in get_args(field.annotation)
        return self.key in values

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        kinds: Kinds = get_args(source)
        union = core_schema.tagged_union_schema(
            {_tag(kind): handler.generate_schema(kind) for kind in kinds},
            discriminator=lambda value: self._tag_of(kinds, value),
        )
        return core_schema.no_info_before_validator_function(partial(self._table, kinds), union)

    def _table(self, kinds: Kinds, value: Any) -> Any:
        """A table that some kind fits, or a section. Raises what pydantic reports otherwise."""
        if isinstance(value, tuple(kinds)):
            return value
        if isinstance(value, str):
            value = {self.key: value}
        if not isinstance(value, Mapping):
            raise PydanticCustomError("dict_type", "no table")
        if self.kind(kinds, value) is None:
            names = " or ".join(filter(None, map(self.names, kinds)))
            given = {"key": self.key, "given": value[self.key], "expected": names}
            raise PydanticCustomError("choice", "no such kind", given)
        return value

    def _tag_of(self, kinds: Kinds, value: Any) -> str:
        kind = self.kind(kinds, value) if isinstance(value, Mapping) else type(value)
        assert kind is not None  # `_table` has seen to it
        return _tag(kind)


def _tag(kind: type[Section]) -> str:
    """The name of a kind in a union, which pydantic reports among the keys."""
    return f"({kind.__name__})"


def dotted(location: Sequence[str | int]) -> str:
    """The key that pydantic reports, without the names of kinds. Example: "engine.name"."""
    key = ".".join(str(part) for part in location if not str(part).startswith("("))
    # What a value may be, as in `str | dict[str, str]`, stands behind its key.
    return re.sub(r"\.(str|bool|dict\[.*\])$", "", key)


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values in nested tables by dotted keys; an empty table has none."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping)
        found |= flattened(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


def is_named(field: FieldInfo) -> bool:
    """Whether a field holds tables by names of the user's own, as `reward.parts` does."""
    return get_origin(field.annotation) is dict and bool(choice_of(field)[0])


def table_name(key: str, field: FieldInfo) -> str:
    """The name of a field's table: "reward.parts.NAME" where NAME is the user's own."""
    return f"{key}.NAME" if is_named(field) else key


def choice_of(field: FieldInfo) -> tuple[tuple[type[Section], ...], Choice | None]:
    """The kinds of section that a field may be, none for a plain value; and the choice among them
    where there are several."""
    return _choice(field.annotation, field.metadata)


def _choice(
    annotation: Any, metadata: Sequence[Any]
) -> tuple[tuple[type[Section], ...], Choice | None]:
    choice = next((entry for entry in metadata if isinstance(entry, Choice)), None)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return ((annotation,) if issubclass(annotation, Section) else ()), choice
    kinds: tuple[type[Section], ...] = ()
    for inner in get_args(annotation):
        found, by = _choice(inner, getattr(inner, "__metadata__", ()))
        kinds, choice = kinds + found, choice or by
    return kinds, choice
