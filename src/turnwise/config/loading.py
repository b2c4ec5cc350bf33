"""Reads recipes: TOML files, shipped ones, `key=value` overrides; and writes them."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import tomli_w
from pydantic import ValidationError, create_model

from turnwise.config.paths import anchored
from turnwise.config.recipe import Recipe
from turnwise.config.section import Choice, Kinds, Section, choice_of, dotted, is_named, table_name
from turnwise.errors import ConfigError, MissingExtraError, unknown_name, wrong_value
from turnwise.wings import loaded, missing, wings

AnySection = TypeVar("AnySection", bound=Section)


def load_recipe(source: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe: a path to a TOML file, or the name of one that comes with turnwise.

    Overrides are `dotted.key=value`, the value in TOML syntax or a bare string. Raises ConfigError
    for a missing or malformed file, an unknown key (naming the nearest known one) or a bad value.
    """
    changes = [parse_override(override) for override in overrides]
    return check_recipe(changed(read_recipe(source), changes), source)


def check_recipe(values: Mapping[str, Any], source: str) -> Recipe:
    """Validate a recipe's values; `source` names them in errors."""
    return check_section(whole_recipe(), values, source)


@cache
def whole_recipe() -> type[Recipe]:
    """The recipe, with the sections that wings add (`Wing.settings`). Raises ConfigError for one
    that turnwise has itself."""
    settings = wings().settings()
    for name in settings.keys() & Recipe.model_fields.keys():
        raise ConfigError(f"a wing adds the section {name}, which turnwise has itself: remove it")
    if not settings:
        return Recipe
    plain = {name: at for name, at in settings.items() if "." not in name}
    added: dict[str, Any] = {name: _added(loaded(at)) for name, at in plain.items()}
    more: dict[str, list[type[Section]]] = {}
    for name, at in settings.items():
        section, dot, _ = name.partition(".")
        if dot:
            more.setdefault(section, []).append(loaded(at))
    added |= {section: _widened(section, kinds) for section, kinds in more.items()}
    # pickle finds the class by name and module, through `__getattr__` below.
    return create_model(
        "WholeRecipe", __base__=Recipe, __module__=__name__, __doc__=Recipe.__doc__, **added
    )


def _added(kind: Any) -> tuple[Any, Any]:
    """A section of a wing as a field, with its default."""
    return (kind, kind()) if getattr(kind, "always", False) else (kind | None, None)


def _widened(section: str, more: Sequence[type[Section]]) -> tuple[Any, Any]:
    """A section of several kinds, as a field that may be of more; kinds of any name come last."""
    field = Recipe.model_fields[section]
    kinds, choice = choice_of(field)
    assert choice is not None
    tried = tuple(sorted((*kinds, *more), key=lambda one: not choice.names(one)))
    return Annotated[Union[tried], choice], field.default  # noqa: UP007 - made here


def __getattr__(name: str) -> Any:
    """Find the class of the recipe again where one is unpickled."""
    if name == "WholeRecipe":
        return whole_recipe()
    raise AttributeError(name)


def check_section(kind: type[AnySection], values: Mapping[str, Any], source: str) -> AnySection:
    """Validate the values of a section that stands alone; `source` names them in errors. Raises
    ConfigError for an unknown key (naming the nearest known one) or a bad value."""
    _check_keys(kind, values, source)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # a whole sentence, of one of the validators
            raise ConfigError(f"{source}: {first['ctx']['error']}") from None
        raise wrong_value(f"{source}: {dotted(first['loc'])}", first) from None


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as TOML with every value spelled out; `load_recipe` reads it back. Sections that
    were left out, and have no defaults, are left out again; so are those of wings that are at their
    defaults, so that a recipe can be read where such a wing is not installed."""
    idle = {name for name, one in recipe.added().items() if one.always and one == type(one)()}
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True, exclude=idle))


def sections(
    kind: type[Section] | None = None, prefix: str = ""
) -> Iterator[tuple[str, type[Section]]]:
    """Every section of a recipe and the prefix of its keys, as in ("train.", TrainConfig); each
    kind of a choice is a section of its own."""
    kind = kind or whole_recipe()
    yield prefix, kind
    for name, field in kind.model_fields.items():
        for inner in choice_of(field)[0]:
            yield from sections(inner, f"{table_name(f'{prefix}{name}', field)}.")


@cache
def _choices() -> dict[str, tuple[Kinds, Choice]]:
    """Tables of a recipe that are one of several kinds of section."""
    return {
        f"{prefix}{name}": (kinds, choice)
        for prefix, kind in sections()
        for name, field in kind.model_fields.items()
        for kinds, choice in [choice_of(field)]
        if choice is not None
    }


@cache
def _words() -> dict[str, str]:
    """The key whose value may stand for each table of a recipe: that of a choice, else its name."""
    named = {prefix[:-1]: "name" for prefix, kind in sections() if "name" in kind.model_fields}
    return named | {table: choice.key for table, (_, choice) in _choices().items()}


@cache
def _optional() -> set[str]:
    """Tables of a recipe that are there or not."""
    return {
        f"{prefix}{name}"
        for prefix, kind in sections()
        for name, field in kind.model_fields.items()
        if choice_of(field)[0] and field.default is None
    }


def recipe_keys() -> Iterator[str]:
    """Every dotted key a recipe may have, those of all kinds of each choice."""
    leaves = (
        f"{prefix}{name}"
        for prefix, kind in sections()
        for name, field in kind.model_fields.items()
        if not choice_of(field)[0]
    )
    yield from dict.fromkeys(leaves)


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with turnwise or a wing, by name."""
    folder = Path(str(resources.files("turnwise") / "recipes"))
    own = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return own | {name: path for name, path in wings().files("recipe").items() if name not in own}


def read_recipe(source: str) -> dict[str, Any]:
    """The values of a recipe's TOML, unchecked; paths in one that comes with turnwise are made
    absolute. Raises ConfigError where there is none."""
    shipped = shipped_recipes()
    path, values = read_toml("recipe", source, shipped)
    found: dict[str, Any] = anchored(values, path.parent) if source in shipped else values
    return found


def read_toml(kind: str, source: str, shipped: Mapping[str, Path]) -> tuple[Path, dict[str, Any]]:
    """The file that a path or a shipped name stands for, and its values, unchecked; `kind` is for
    messages. Raises ConfigError where there is none."""
    path = shipped.get(source, Path(source))
    if not path.is_file():
        if path.suffix or "/" in source:
            raise ConfigError(f"{kind} {source}: there is no such file")
        raise missing(kind, source) or unknown_name(kind, source, shipped)
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{kind} {source} is not valid TOML: {error}") from None


def parse_override(override: str) -> tuple[str, Any]:
    """The key and the value of `dotted.key=value`, the value in TOML syntax or a bare string.

    Raises ConfigError for any other text."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r}: write key=value, as in train.steps=10")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text
    except RecursionError:
        raise ConfigError(f"override {key}: its value is nested too deeply") from None


def set_key(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested tables."""
    *tables, leaf = key.split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"override {key}: {table!r} is a value, not a table")
    values[leaf] = value


def changed(values: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The values of a recipe with dotted keys set to others, in their order.

    A change of a table's kind drops what the new kind does not have, but for other changes: so
    `engine=vllm` may be said of a recipe that has settings of another engine. A table that need not
    be there is left out by the value false: `evaluation.during_rl=false`.
    """
    made: list[str] = []
    choices = _choices()
    _spell_out(values)
    for key, value in changes:
        if key in choices and isinstance(value, str):
            key = f"{key}.{choices[key][1].key}"
        set_key(values, key, None if value is False and key in _optional() else value)
        _spell_out(values)  # the change may be such a word
        table, _, name = key.rpartition(".")
        if table in choices and name == choices[table][1].key:
            _drop_others(values, table, made)
        made.append(f"{key}.")
    return values


def _spell_out(values: dict[str, Any]) -> None:
    """Write every table that is given as a word as one."""
    for table, key in _words().items():
        *tables, last = table.split(".")
        inner: Any = values
        for name in tables:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(last), str):
            inner[last] = {key: inner[last]}


def _drop_others(values: Any, table: str, kept: Sequence[str]) -> None:
    """Delete the keys that only other kinds of the table have, unless they begin one of `kept`."""
    for name in table.split("."):
        values = values[name]
    kinds, choice = _choices()[table]
    kind = choice.kind(kinds, values)
    others = {name for each in kinds if kind for name in each.model_fields}
    for name in others.difference(kind.model_fields if kind else ()):
        if not any(change.startswith(f"{table}.{name}.") for change in kept):
            values.pop(name, None)


def _check_keys(kind: type[Section], values: Mapping[str, Any], source: str) -> None:
    """Raise ConfigError for the first key that there is not, or that goes with another choice."""
    for key, misplaced in _unknown(values, kind, ""):
        if (uninstalled := _of_missing_wing(values, key)) is not None:
            raise uninstalled
        if misplaced:
            raise ConfigError(f"{source}: {key} {misplaced}")
        moved = keys_that_end(key) if issubclass(kind, Recipe) else []
        if len(moved) > 1:
            raise ConfigError(f"{source}: unknown key {key!r}: there are {', '.join(moved)}")
        raise ConfigError(
            f"{source}: {unknown_name('key', key, moved or _known(values, kind, ''))}"
        )


def _of_missing_wing(values: Mapping[str, Any], key: str) -> MissingExtraError | None:
    """The error for a key of a section, or of a kind of section, that is not installed."""
    section = key.partition(".")[0]
    table = values.get(section)
    name = table.get("name") if isinstance(table, Mapping) else None
    return missing("section", section) or missing(section, str(name))


def keys_that_end(key: str) -> list[str]:
    """List the keys that stand deeper than an unknown one: `algorithm.critic.kind` for
    `critic.kind`, `evaluation.during_rl.every` for `evaluation.every`."""
    section, _, leaf = key.rpartition(".")
    return [
        known
        for known in recipe_keys()
        if known.endswith(f".{key}")
        or (section and known.startswith(f"{section}.") and known.endswith(f".{leaf}"))
    ]


def _unknown(
    values: Mapping[str, Any], kind: type[Section], prefix: str
) -> Iterator[tuple[str, str]]:
    """Each key that a section does not have, as far as its first leaf."""
    for key, value in values.items():
        if key not in kind.model_fields:
            if kind.model_config.get("extra") != "allow":
                yield f"{prefix}{key}{_first_leaf(value)}", ""
            continue
        kinds, choice = choice_of(kind.model_fields[key])
        if is_named(kind.model_fields[key]):
            tables = value.items() if isinstance(value, Mapping) else ()
            for name, table in tables:
                if isinstance(table, Mapping):
                    yield from _unknown(table, kinds[0], f"{prefix}{key}.{name}.")
            continue
        inner = _kind(kinds, choice, value)
        if inner is None or not isinstance(value, Mapping):
            continue
        for name in value:
            if choice is not None and name not in inner.model_fields:
                fitting = [each for each in kinds if name in each.model_fields]
                if fitting:
                    given = value.get(choice.key, inner.model_fields[choice.key].default)
                    misplaced = _misplaced(f"{prefix}{key}.{choice.key}", choice, fitting, given)
                    yield f"{prefix}{key}.{name}", misplaced
        yield from _unknown(value, inner, f"{prefix}{key}.")


def _misplaced(decided: str, choice: Choice, fitting: Kinds, given: Any) -> str:
    """Describe the mistake of a key that other kinds of the same choice have, which are `fitting`;
    `decided` is the key that says the kind, and has the value `given`."""
    names = " or ".join(filter(None, map(choice.names, fitting)))
    if not names:
        return f"does not go with {decided} = {given!r}: leave one of them out"
    return f"goes with {decided} = {names}, but that is {given!r}: leave it out, or change that"


def _known(values: Any, kind: type[Section], prefix: str) -> Iterator[str]:
    """Every key that a section may have, of choices those of the chosen kind."""
    given = values if isinstance(values, Mapping) else {}
    for key, field in kind.model_fields.items():
        kinds, choice = choice_of(field)
        if is_named(field):
            for name, table in (given.get(key) or {}).items():
                yield from _known(table, kinds[0], f"{prefix}{key}.{name}.")
            continue
        inner = _kind(kinds, choice, given.get(key, {}))
        if inner is None:
            yield f"{prefix}{key}"
        else:
            yield from _known(given.get(key), inner, f"{prefix}{key}.")


def _kind(kinds: Kinds, choice: Choice | None, value: Any) -> type[Section] | None:
    """The kind of section that a value is for; None for a plain value, or where none fits."""
    if choice is None:
        return kinds[0] if kinds else None
    given = {choice.key: value} if isinstance(value, str) else value
    return choice.kind(kinds, given) if isinstance(given, Mapping) else None


def _first_leaf(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        key, inner = next(iter(value.items()))
        return f".{key}{_first_leaf(inner)}"
    return ""
