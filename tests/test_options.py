"""Options: types, ranges, and tables of which a recipe writes one."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from turnwise.errors import ConfigError
from turnwise.options import Options, checked_options
from turnwise.ranges import Count, Range, Share


@dataclass(frozen=True)
class Made(Options):
    count: Count = 10
    steps: Annotated[int, Range(1, 4)] = 2


@dataclass(frozen=True)
class File(Options):
    file: str
    share: Share = 0.5


def build(tasks: Made | File = Made(), depth: Count = 1, *, user: File | None = None) -> None:
    """A constructor."""


def checked(options: dict[str, Any], kind: Callable[..., Any] = build) -> dict[str, Any]:
    return checked_options(kind, options)


def test_values_are_converted_and_tables_made() -> None:
    assert checked({}) == {}
    assert checked({"tasks": {}}) == {"tasks": Made()}
    assert checked({"tasks": {"steps": 3}, "depth": "2"}) == {"tasks": Made(10, 3), "depth": 2}
    assert checked({"tasks": {"file": "a", "share": 1}}) == {"tasks": File("a", 1.0)}
    assert checked({"tasks": File("b")}) == {"tasks": File("b")}
    assert checked({"user": None}) == {"user": None}


def test_objects_of_a_scripts_own_class_are_taken_as_they_are() -> None:
    class Judge: ...

    def kind(judge: Judge, others: list[Judge]) -> None: ...

    given = {"judge": Judge(), "others": [Judge()]}
    assert checked(given, kind) == given


def test_a_type_that_is_there_for_the_type_checker_alone() -> None:
    def kind(judge: "Judge") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match="name 'Judge' is not defined: import a type for more"):
        checked({"judge": 1}, kind)


WRONG: dict[str, dict[str, Any]] = {
    "unknown option 'dept': did you mean 'depth'": {"dept": 1},
    "unknown option 'count': did you mean 'tasks.count'": {"count": 1},
    "unknown option 'tasks.shar': did you mean 'tasks.share'": {"tasks": {"file": "a", "shar": 1}},
    "option 'depth' is 0: give a value of at least 1": {"depth": 0},
    "option 'tasks.steps' is 5: give a value of at most 4": {"tasks": {"steps": 5}},
    "option 'tasks.count' is 'x': give a whole number": {"tasks": {"count": "x"}},
    "option 'tasks' is 'a.jsonl': give a table": {"tasks": "a.jsonl"},
    "option 'tasks.share' goes with tasks.file: set it too, or remove share": {
        "tasks": {"share": 0.1}
    },
    "option 'tasks.count' does not go with tasks.file: remove one of them": {
        "tasks": {"file": "a", "count": 3}
    },
    "environment.options.user lacks file: set it": {"user": {"share": 0.5}},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_a_line_that_says_what_to_do(message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        checked(WRONG[message])


def test_a_table_is_held_to_its_ranges_in_python_too() -> None:
    assert Made(steps=4) == Made(10, 4)
    with pytest.raises(ConfigError, match="option 'steps' is 5: give a value of at most 4"):
        Made(steps=5)


def test_an_option_without_a_default_is_asked_for() -> None:
    def needs(url: str) -> None: ...

    with pytest.raises(ConfigError, match=r"set environment\.options\.url"):
        checked({}, needs)
