"""Contenders in processes, and the environments that peers run in."""

import sys
from pathlib import Path

import pytest
from contenders import Contender, alternate, ratio
from peers import Peer, cache, fits, versions

WORKER = """
import os, sys
sys.path.insert(0, {folder!r})
from contenders import Worker
worker = Worker()
print("noise")
asked = worker.answer(path=os.environ.get("PYTHONPATH"), variable=os.environ["VARIABLE"])
for number in range({rounds}):
    asked = worker.answer(number=number, **asked)
sys.exit("the last words")
"""


def contender(name: str, rounds: int = 9) -> Contender:
    folder = str(Path(sys.modules[Contender.__module__].__file__ or "").parent)
    code = WORKER.format(folder=folder, rounds=rounds)
    return Contender(name, [sys.executable, "-c", code], {"VARIABLE": "value"})


def test_contenders_do_as_many_rounds_as_they_are_asked_for() -> None:
    with contender("first") as first, contender("second") as second:
        assert [one.answer()["variable"] for one in (first, second)] == ["value", "value"]
        answers = alternate([first, second], 2, size=3)
    said = [{"number": 0, "size": 3}, {"number": 1, "size": 3}]
    assert answers == {"first": said, "second": said}


def test_a_contender_that_ends_is_shown_with_its_last_words() -> None:
    with contender("it", rounds=1) as one:
        one.answer()
        assert one.round() == {"number": 0}
        with pytest.raises(SystemExit, match=r"(?s)the last words.*it has ended"):
            one.round()


def test_another_interpreter_does_not_see_this_ones_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    with contender("own") as own:
        assert own.answer()["path"] == "somewhere"
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(other))
    own_command = own._process.args
    with Contender("foreign", own_command, {"VARIABLE": ""}) as foreign:
        assert foreign.answer()["path"] is None


def test_ratios_are_those_of_the_rounds() -> None:
    assert ratio([4.0, 9.0, 2.0], [2.0, 3.0, 2.0]) == "2.00 (1.00 – 3.00)"


def test_an_environment_fits_if_it_has_what_is_pinned_and_nothing_unwanted() -> None:
    peer = Peer(("torch==2.13.0",), ("torchvision",))
    assert fits(peer, {"torch": "2.13.0+cpu", "numpy": "2.4.6"})
    assert not fits(peer, {"torch": "2.12.0+cpu"})
    assert not fits(peer, {"torch": "2.13.0", "torchvision": "0.1"})
    assert not fits(peer, versions(Path("/no/python")))


def test_versions_are_those_that_an_interpreter_sees() -> None:
    assert versions(Path(sys.executable))["pytest"] == pytest.__version__


def test_the_folder_of_environments_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNWISE_PEERS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache() == Path("/caches/turnwise/peers")
    monkeypatch.setenv("TURNWISE_PEERS", "/elsewhere")
    assert cache() == Path("/elsewhere")
