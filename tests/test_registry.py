"""Names of parts: what is found by them, and what is said when nothing is."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.engines.registry import ENGINES
from turnwise.errors import ConfigError
from turnwise.registry import Registry, check_options, whole_target
from turnwise.scaffolds.registry import METHODS, SCAFFOLDS, shows_images

MODULE = """
class Round:
    turns = 1

class Square:
    pass
"""
Install = Callable[[str, str, str], None]


@pytest.fixture
def wheels() -> Registry[type]:
    registry: Registry[type] = Registry(
        "wheel", lambda value: hasattr(value, "turns"), "give a class with turns"
    )
    registry.register("plain", "no_such_package.plain:Plain", "what everybody has")
    return registry


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a package with a module and an entry point among the wheels."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(package: str, name: str, text: str) -> None:
        folder = tmp_path / f"{package}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[turnwise.wheels]\n{name} = {package}:Round\n")
        (tmp_path / f"{package}.py").write_text(text)

    return write


def test_a_file_a_module_and_an_entry_point(
    wheels: Registry[type], install: Install, tmp_path: Path
) -> None:
    install("wheel_maker", "round", MODULE)
    assert wheels.get("round") is wheels.get("wheel_maker:Round")
    assert wheels.get(f"{tmp_path}/wheel_maker.py:Round").__name__ == "Round"
    assert wheels.descriptions() == {
        "round": "wheel_maker:Round of wheel_maker",
        "plain": "what everybody has",
    }


def test_checking_and_describing_import_nothing(wheels: Registry[type], install: Install) -> None:
    install("wheel_left_alone", "round", MODULE)
    for name in ("plain", "round", "nowhere.py:Round"):
        wheels.check(name)
    assert "round" in wheels.descriptions()
    assert "wheel_left_alone" not in sys.modules


def test_a_built_in_name_comes_first(wheels: Registry[type], install: Install) -> None:
    install("wheel_of_that_name", "plain", MODULE)
    assert wheels.descriptions() == {"plain": "what everybody has"}
    with pytest.raises(ConfigError, match="no_such_package"):
        wheels.get("plain")


def test_what_is_not_there_or_of_another_kind(wheels: Registry[type], install: Install) -> None:
    install("wheel_shop", "round", MODULE)
    for name, message in {
        "plan": "unknown wheel 'plan': did you mean 'plain'",
        "rond": "unknown wheel 'rond': did you mean 'round'",
        "wheel_shop:Squar": "unknown class 'Squar': known: Round",
        "wheel_shop:Rund": "wheel_shop: unknown class 'Rund': did you mean 'Round'",
        "json:Round": "json: there is no 'Round', and nothing else .* wheel: give a class with",
        "wheel_shop:Square": "wheel_shop:Square: not a wheel: give a class with turns",
        "round.py": r"round\.py is a file: name what is in it, as in round\.py:NAME",
        "nowhere.py:Round": "wheel file nowhere.py: there is no such file",
        "no_such_package:Round": "wheel module 'no_such_package': there is no such module",
    }.items():
        with pytest.raises(ConfigError, match=message):
            wheels.get(name)


def test_two_packages_of_one_name_are_told_apart(wheels: Registry[type], install: Install) -> None:
    install("wheel_first", "round", MODULE)
    install("wheel_second", "round", MODULE)
    with pytest.raises(ConfigError, match="in several packages, wheel_first, wheel_second: write"):
        wheels.get("round")
    assert wheels.get("wheel_second:Round").__module__ == "wheel_second"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import wheels_of_nobody", "ModuleNotFoundError: No module named 'wheels_of_nobody'"),
        ("class Round(:", "SyntaxError: invalid syntax"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_package_that_cannot_be_imported(
    wheels: Registry[type], install: Install, text: str, message: str
) -> None:
    package = f"wheel_broken_{len(text)}"
    install(package, "round", f"a = 1\n{text}\n")
    with pytest.raises(ConfigError) as raised:
        wheels.get("round")
    said = str(raised.value)
    assert said.startswith(f"wheel 'round' of package {package} cannot be imported: {message}")
    assert f"{package}.py, line 2" in said
    assert "\n" not in said


def test_a_relative_file_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)
    assert whole_target("mine.py:Round") == f"{tmp_path}/mine.py:Round"
    for name in ("nowhere.py:Round", "wheel_shop:Round", "plain", f"{tmp_path}/mine.py:Round", ""):
        assert whole_target(name) == name


def test_options_are_those_of_the_constructor() -> None:
    def made(tokenizer: str, loud: bool = False) -> None: ...

    check_options("options", made, ("x",), {"loud": True})
    with pytest.raises(ConfigError, match="options: got an unexpected keyword argument 'lud'"):
        check_options("options", made, ("x",), {"lud": True})


METHODS_OF_A_SCAFFOLD = "".join(f"    def {name}(self): ...\n" for name in METHODS)
OF_ONES_OWN = f"""
from turnwise.engines.embedded import EmbeddedEngine

class Halting:
    def open(self, session): ...

class Quiet(EmbeddedEngine):
    takes_images = False

class Words:
{METHODS_OF_A_SCAFFOLD}
class Mute:
    stop = ()
"""


def test_an_engine_and_a_scaffold_have_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OF_ONES_OWN)
    assert not ENGINES.get(f"{path}:Quiet").takes_images
    with pytest.raises(ConfigError, match="Halting: not an engine: give a class with open, close"):
        ENGINES.get(f"{path}:Halting")
    assert not shows_images(f"{path}:Words")
    assert shows_images("tags")
    with pytest.raises(ConfigError, match="Mute: not a scaffold: give a class with begin, extend"):
        SCAFFOLDS.get(f"{path}:Mute")
