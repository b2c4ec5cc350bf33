"""Messages name what was given, what to write instead, and the line of a user's own file."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from tests.processes import run_python
from turnwise.errors import located, own_place, wrong_value
from turnwise.registry import load_module


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, "x", "steps is 'x': give a whole number"),
        (int, 1.5, "steps is 1.5: give a whole number"),
        (float, "much", "steps is 'much': give a number"),
        (bool, "maybe", "steps is 'maybe': give true or false"),
        (str, 3, "steps is 3: give a text"),
        (dict[str, Any], 3, "steps is 3: give a table"),
        (list[int], 3, "steps is 3: give a list"),
        (tuple[int, ...], 3, "steps is 3: give a list"),
        (Literal["a", "b"], "c", "steps is 'c': give one of 'a' or 'b'"),
        (Annotated[int, Field(ge=2)], 1, "steps is 1: give a value of at least 2"),
        (Annotated[float, Field(gt=0)], 0, "steps is 0: give a value above 0"),
        (Annotated[float, Field(le=1)], 2, "steps is 2: give a value of at most 1"),
    ],
)
def test_a_wrong_value_says_what_to_write(kind: Any, value: object, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(kind).validate_python(value)
    assert str(wrong_value("steps", raised.value.errors()[0])) == message


def test_the_place_of_an_error_is_the_deepest_line_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import json\n\ndef read():\n    return json.loads('[')\n")
    with pytest.raises(json.JSONDecodeError) as raised:
        load_module(str(file), "test").read()
    assert own_place(raised.value).endswith("mine.py, line 4")
    assert located(raised.value).startswith("JSONDecodeError: Expecting value")


def test_an_error_whose_text_fails_has_its_kind() -> None:
    class Status(Exception):
        def __str__(self) -> str:
            return 503  # type: ignore[return-value]

    assert located(Status()) == "Status"


def test_a_syntax_error_is_placed_in_the_file_that_has_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\ndef (\n")
    with pytest.raises(SyntaxError) as raised:
        load_module(str(file), "test")
    assert own_place(raised.value).endswith("mine.py, line 2")


def test_an_error_of_turnwise_or_a_library_has_no_place_of_the_users() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_python("x")
    raised.value.__traceback__ = raised.tb.tb_next
    assert own_place(raised.value) == ""


INSTALLED = """
import pathlib, site
from turnwise.errors import own_place
place = pathlib.Path(site.getusersitepackages()) / "theirs.py"
place.parent.mkdir(parents=True)
place.write_text("1 / 0")
try:
    exec(compile(place.read_text(), str(place), "exec"))
except ZeroDivisionError as error:
    print(repr(own_place(error)))
"""


def test_what_pip_installed_for_a_user_is_not_the_users_own(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONUSERBASE": str(tmp_path)}
    done = run_python(INSTALLED, env=environment)
    assert (done.stdout, done.stderr) == ("''\n", "")
