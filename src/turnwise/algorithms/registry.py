"""Algorithms by name, as a recipe asks for them: a row with some parts and numbers replaced."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from turnwise.algorithms.algorithm import COEFFICIENTS, Algorithm
from turnwise.algorithms.claims import check_algorithm, ratio_note
from turnwise.algorithms.parts import PARTS, Number, Part, Setting, declared_part
from turnwise.algorithms.rows import ALGORITHMS
from turnwise.errors import ConfigError, unknown_name
from turnwise.wings import loaded, missing, wings

SECTIONS = ("critic", "implicit_reward", "self_teacher", "teacher")
"""Tables of a recipe's `algorithm` that are no options: the settings of its signals."""


def algorithm_names() -> list[str]:
    """The names of all algorithms, the core's first, then those of wings."""
    return list(dict.fromkeys([*ALGORITHMS, *wings().parts("algorithm")]))


def row_of(name: str) -> Algorithm:
    """The row of that name. Raises ConfigError, for one of a missing wing MissingExtraError."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    of_wings = wings().parts("algorithm")
    if name not in of_wings:
        raise missing("algorithm", name) or unknown_name("algorithm", name, algorithm_names())
    row: Algorithm = loaded(of_wings[name][0])
    return row


def make_algorithm(name: str, overrides: Mapping[str, Any]) -> Algorithm:
    """The named row with some of its choices and numbers replaced.

    A number of a part that is no longer chosen goes with it. Raises ConfigError for an unknown
    name, key or choice (naming the nearest known one), a value of wrong type or range, a number
    that no chosen part takes, and for parts or KL terms that do not go together.
    """
    row = row_of(name)
    chosen: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for key, value in overrides.items():
        if key in PARTS:
            chosen[key] = _choice(key, value)
        elif key == "whitening":
            chosen[key] = _flag(key, value)
        elif key in COEFFICIENTS:
            chosen[key] = _setting(key, value, COEFFICIENTS[key])
        else:
            given[key] = value
    algorithm = replace(row, **chosen)
    check_algorithm(algorithm, row, given)
    taken = {
        key: number for choice in PARTS for key, number in algorithm.part(choice).numbers.items()
    }
    numbers = {key: value for key, value in row.numbers.items() if key in taken}
    for key, value in given.items():
        if key not in taken:
            raise _not_taken(name, algorithm, key, taken)
        numbers[key] = _setting(key, value, taken[key])
    return replace(algorithm, numbers=numbers)


def describe(name: str) -> dict[str, Any]:
    """An algorithm's parts with their numbers (None for a missing bound), and a note on what it
    comes to. Raises ConfigError for an unknown name."""
    algorithm = make_algorithm(name, {})
    parts = {
        choice: _described(algorithm.part(choice), algorithm.numbers_of(choice)) for choice in PARTS
    }
    flags = {key: getattr(algorithm, key) for key in ("whitening", *COEFFICIENTS)}
    return {"name": name, "source": algorithm.source, **flags, "parts": parts} | {
        "needs": sorted(algorithm.needs),
        "note": _note(algorithm),
    }


def describe_parts(name: str) -> list[dict[str, Any]]:
    """The parts of that name, built-in or declared by `part`, with their numbers and needs. Raises
    ConfigError for an unknown name, and where the choice is not stated."""
    if ":" in name:
        declared = declared_part(name)
        found = [PARTS[declared.choice].get(name)]
    else:
        found = [part.get(name) for part in PARTS.values() if name in part.descriptions()]
    if not found:
        known = [
            *algorithm_names(),
            *(each for part in PARTS.values() for each in part.descriptions()),
        ]
        of_wings = (missing(kind, name) for kind in ("algorithm", *PARTS))
        raise next(filter(None, of_wings), None) or unknown_name(
            "algorithm or part", name, set(known)
        )
    return [
        {"choice": part.choice, "needs": sorted(part.needs)}
        | _described(part, {key: number.default for key, number in part.numbers.items()})
        for part in found
    ]


def _described(part: Part, numbers: Mapping[str, Any]) -> dict[str, Any]:
    finite = {key: None if value == math.inf else value for key, value in numbers.items()}
    return {"part": part.name, "description": part.description, "numbers": finite}


def table() -> list[dict[str, Any]]:
    """Every algorithm's choices by field name, for people to compare."""
    return [
        {entry.name: getattr(row, entry.name) for entry in fields(row)}
        | {"needs": sorted(row.needs), "note": _note(row)}
        for row in map(row_of, algorithm_names())
    ]


def _note(row: Algorithm) -> str:
    """Say in which points a row differs from its source, and what its ratios come to."""
    differs = f"otherwise than in its source: {row.differs}" if row.differs else ""
    return "; ".join(filter(None, (differs, ratio_note(row))))


def _not_taken(
    name: str, algorithm: Algorithm, key: str, taken: Mapping[str, Setting]
) -> ConfigError:
    for choice, options in PARTS.items():
        for option in options.names():
            if key in options.get(option).numbers:
                return ConfigError(
                    f"algorithm {name}: {key} goes with {choice} = {option!r}, "
                    f"but {choice} is {getattr(algorithm, choice)!r}"
                )
    return unknown_name(
        "algorithm option", key, ("name", *PARTS, "whitening", *COEFFICIENTS, *taken, *SECTIONS)
    )


def _choice(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"algorithm.{key} must be a name, not {value!r}")
    PARTS[key].check(value)
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"algorithm.{key} must be true or false, not {value!r}")
    return value


def _setting(key: str, value: Any, setting: Setting) -> float | dict[str, float]:
    if not setting.accepts(value):
        raise ConfigError(f"algorithm.{key} must be {setting}, not {value!r}")
    if isinstance(setting, Number):
        return int(value) if setting.whole else float(value)
    return {name: float(weight) for name, weight in value.items()}
