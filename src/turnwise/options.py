"""Options: arguments of a constructor or function, with types and ranges in its signature.

    class Mathematics(Environment):
        def __init__(self, tasks: MadeProblems | QuestionFile = MadeProblems()) -> None: ...

    @dataclass(frozen=True)
    class MadeProblems(Options):
        count: Count = 1000
        max_steps: Annotated[int, Range(1, 4)] = 4

What goes together is a table of options; what does not is in different tables, of which a recipe
writes one: `environment.options.tasks = { count = 500 }`. Here is the only check of them all.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_args, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from turnwise.errors import ConfigError, unknown_name, wrong_value


@dataclass(frozen=True)
class Options:
    """A table of options that go together; a frozen dataclass is derived from it.

    Raises ConfigError for a value of another type, or out of its range.
    """

    def __post_init__(self) -> None:
        """Convert the values to the fields' types."""
        for name, annotation in get_type_hints(type(self), include_extras=True).items():
            object.__setattr__(self, name, converted(name, annotation, getattr(self, name)))


def checked_options(
    kind: Callable[..., Any], options: Mapping[str, Any], place: str = "environment.options"
) -> dict[str, Any]:
    """The options, converted to the types that the signature of `kind` states; `place` is their
    table in a recipe.

    Raises ConfigError, in one line, for an option that is not there (it proposes the nearest one),
    for one that is missing, for a value that does not fit, and for options that do not go together.
    """
    try:
        parameters = inspect.signature(kind, eval_str=True).parameters
    except NameError as error:
        raise ConfigError(
            f"{place}: {error}: import a type for more than the type checker"
        ) from None
    named = {key: entry for key, entry in parameters.items() if entry.kind not in _VARIABLE}
    # Where it takes **options any name may be right, and it checks them itself.
    if len(named) == len(parameters):
        in_tables = [
            f"{key}.{name}"
            for key, entry in named.items()
            for table in _tables(entry.annotation)
            for name in _names(table)
        ]
        _check_known(options, named, {*named, *in_tables})
    for option, parameter in named.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ConfigError(f"set {place}.{option}")
    return {
        option: converted(option, named[option].annotation, value, place)
        if option in named
        else value
        for option, value in options.items()
    }


def converted(option: str, annotation: Any, value: Any, place: str = "environment.options") -> Any:
    """The value as the annotation wants it; a mapping may stand for a table of options."""
    if annotation is inspect.Parameter.empty:
        return value
    tables = _tables(annotation)
    if tables and isinstance(value, Mapping):
        return _table(f"{place}.{option}", option, tables, value)
    if tables:
        if not isinstance(value, annotation):
            raise ConfigError(f"option {option!r} is {value!r}: give a table")
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise wrong_value(f"option {option!r}", error.errors()[0]) from None
    except PydanticSchemaGenerationError:  # objects of a script's own class
        return value


_VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _tables(annotation: Any) -> list[type[Options]]:
    """The tables among which an annotation lets one choose."""
    kinds = get_args(annotation) or (annotation,)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Options)]


def _table(
    place: str, option: str, tables: Sequence[type[Options]], given: Mapping[str, Any]
) -> Options:
    """The table of which all needed options are given; of several, the one that needs most."""
    fitting = [table for table in tables if _needed(table) <= given.keys()]
    if not fitting:
        ways = " or ".join(" and ".join(sorted(_needed(table) - given.keys())) for table in tables)
        raise ConfigError(f"{place} lacks {ways}: set it")
    table = max(fitting, key=lambda one: len(_needed(one)))
    for name in given:
        owners = [one for one in tables if name in _names(one)]
        if owners and table not in owners:
            raise _apart(option, name, table, owners[0], given)
    known = {f"{option}.{name}" for one in tables for name in _names(one)}
    _check_known([f"{option}.{name}" for name in given], known, known)
    hints = get_type_hints(table, include_extras=True)
    return table(
        **{name: converted(f"{option}.{name}", hints[name], one) for name, one in given.items()}
    )


def _apart(
    option: str, name: str, table: type[Options], owner: type[Options], given: Mapping[str, Any]
) -> ConfigError:
    """The error for an option that belongs to another table than those given with it."""
    missing = [f"{option}.{other}" for other in sorted(_needed(owner) - given.keys())]
    if missing:
        return ConfigError(
            f"option '{option}.{name}' goes with {' and '.join(missing)}: set it too, or remove "
            f"{name}"
        )
    with_it = " and ".join(f"{option}.{other}" for other in sorted(_needed(table)))
    return ConfigError(f"option '{option}.{name}' does not go with {with_it}: remove one of them")


def _check_known(options: Iterable[str], known: Iterable[str], proposed: Iterable[str]) -> None:
    for option in options:
        if option not in known:
            raise unknown_name("option", option, proposed)


def _names(table: type[Options]) -> list[str]:
    return [field.name for field in fields(table)]


def _needed(table: type[Options]) -> set[str]:
    """The options of a table that have no default."""
    without = (one for one in fields(table) if one.default is one.default_factory is MISSING)
    return {one.name for one in without}
