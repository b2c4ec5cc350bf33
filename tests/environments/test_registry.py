"""Environments by name, file or module, and what is said when there is none."""

from pathlib import Path

import pytest

from turnwise.environments.registry import ENVIRONMENTS, make_environment
from turnwise.errors import ConfigError
from turnwise.registry import load_function

OWN = """
from dataclasses import dataclass
from turnwise.environments.base import Environment

@dataclass
class Room:
    size: int

class Echo(Environment):
    def __init__(self, times: int, loud: bool = False) -> None:
        self.room, self.loud = Room(times), loud

class Open(Environment):
    def __init__(self, **anything): self.anything = anything

class Other: ...
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


def test_names_have_a_line_each():
    names = ENVIRONMENTS.descriptions()
    assert "search" in names
    assert all(line and "\n" not in line for line in names.values())


def test_a_class_in_a_file(file):
    environment = make_environment(f"{file}:Echo", {"times": 3})
    assert (environment.room.size, environment.loud) == (3, False)
    assert make_environment(f"{file}:Open", {"a": 1}).anything == {"a": 1}


def test_an_edited_file_is_read_again(file):
    first = type(make_environment(f"{file}:Echo", {"times": 3}))
    assert first is type(make_environment(f"{file}:Echo", {"times": 3}))
    file.write_text(OWN.replace("Room(times)", "Room(2 * times)"))
    assert make_environment(f"{file}:Echo", {"times": 3}).room.size == 6


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("serch", {}, "unknown environment 'serch': did you mean 'search'"),
        ("turnwise.types:Task", {}, "derive the class from Environment"),
        ("{file}:Echo", {"time": 1}, "unknown option 'time': did you mean 'times'"),
    ],
)
def test_what_is_not_there(file, name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_environment(name.format(file=file), options)


@pytest.mark.wing("environments")
@pytest.mark.long
def test_the_recipe_chooses_the_sandbox():
    table = {"kind": "docker", "limits": {"seconds": 2.0}}
    sandbox = make_environment("code", {"seconds": 9.0}, {}, table).sandbox
    assert (sandbox.settings.kind, sandbox.settings.limits.seconds) == ("docker", 2.0)
    assert sandbox.settings.limits.cpu_seconds == 9.0  # the environment's own
    service = {"kind": "sandbox_fusion", "url": "http://127.0.0.1:1"}
    options = {"interpreter": "python", "count": 4}
    sandbox = make_environment("multi_tool", options, {}, service).sandbox
    assert sandbox.find_tier() == "sandbox_fusion"


@pytest.mark.wing("environments")
@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("search", {"kind": "docker"}, "search takes no table .sandbox.: remove it"),
        ("mathematics", {"warm": 1}, "is for interpreter = 'python'"),
        ("multi_tool", {"warm": 1}, "is for interpreter = 'python'"),
        ("code", {"kin": "docker"}, "did you mean 'sandbox.kind'"),
        ("code", {"tier": "rlimits"}, "sandbox.tier is 'rlimits'"),
    ],
)
def test_sandboxes_that_do_not_fit(name, table, message):
    with pytest.raises(ConfigError, match=message):
        make_environment(name, {}, {}, table)


def test_an_error_inside_a_file_goes_through(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import not_a_package_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="not_a_package_at_all"):
        make_environment(f"{path}:A", {})


def test_a_function_in_a_file(file):
    assert load_function(f"{file}:Room", "a")(3).size == 3
    for target, message in {
        f"{file}:Rom": "unknown function 'Rom': did you mean 'Room'",
        "Room": "names no function",
        "nowhere.py:f": "no such file",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_function(target, "a")
