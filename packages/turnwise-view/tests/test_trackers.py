"""Trackers get every step, may fail as they like, and never hold a run up.

The libraries are fakes; TensorBoard is the real one where it is installed.
"""

import importlib
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from turnwise.config import check_recipe
from turnwise.errors import ConfigError, UserError
from turnwise.parts import first_checks
from turnwise.storage.run_folder import RunFolder
from turnwise_view import trackers
from turnwise_view.trackers import Trackers, check_trackers, tracked_run

FAKES = Path(__file__).with_name("fake_trackers")
NAMES = ("wandb", "mlflow", "trackio")
NAMED = {"name": "demo", "environment": {"name": "search"}}
RECIPE = check_recipe(NAMED, "test")


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a fake in a library's place."""
    forget()
    monkeypatch.syspath_prepend(FAKES)
    yield importlib.import_module
    forget()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.new(tmp_path / "first-try")
    folder.begin(RECIPE)
    return folder


def track(name: str, folder: RunFolder, steps: range, pause: float = 0.0) -> list[str]:
    """A run's steps, as the trainer tells of them; returns what was said."""
    said: list[str] = []
    opened = Trackers([name], tracked_run(RECIPE, folder, steps.start - 1), said.append)
    for step in steps:
        opened.log({"step": step, "reward/mean": step / 10, "policy/loss": -1.0}, step)
        time.sleep(pause)  # the tracker has a thread of its own
    opened.close()
    return said


def sent(step: int) -> dict[str, float]:
    return {"reward/mean": step / 10, "policy/loss": -1.0}


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_that_go_on_keep_their_identity(
    fakes: Callable[[str], Any], folder: RunFolder, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    library = fakes(name)
    assert track(name, folder, range(1, 4)) == []
    assert track(name, folder, range(3, 5)) == []
    assert [call for call, _ in library.CALLS] == [
        *("init", "log", "log", "log", "finish"),
        *("init", "log", "log", "finish"),
    ]
    begun, again = (given for call, given in library.CALLS if call == "init")
    assert begun == again
    assert (begun["project"], begun["resume"]) == ("demo", "allow")
    assert begun["name"].startswith("first-try")
    assert [given for call, given in library.CALLS if call == "log"] == [
        (sent(step), step) for step in (1, 2, 3, 3, 4)
    ]
    assert capsys.readouterr().out == ""
    folder.begin(RECIPE)  # in place of the run that is there
    assert tracked_run(RECIPE, folder, 0).id not in str(begun)


def test_mlflow_finds_its_run_again(fakes: Callable[[str], Any], folder: RunFolder) -> None:
    library = fakes("mlflow")
    assert track("mlflow", folder, range(1, 3)) == track("mlflow", folder, range(3, 4)) == []
    (run,) = library.RUNS.values()
    assert (run["name"], run["status"], library.EXPERIMENTS) == (
        "first-try",
        "FINISHED",
        {"demo": "0"},
    )
    assert run["metrics"] == [(*pair, step) for step in (1, 2, 3) for pair in sent(step).items()]
    assert run["params"]["train.steps"] == str(RECIPE.train.steps)


def test_one_that_fails_is_told_of_once_and_counted(
    fakes: Callable[[str], Any], folder: RunFolder
) -> None:
    library = fakes("wandb")
    library.FAILING_STEPS |= {2, 3, 5}
    said = track("wandb", folder, range(1, 7), pause=0.05)
    assert len(said) == 2
    assert "tracker wandb fails (ConnectionError: no network); the run goes on" in said[0]
    assert said[1] == "tracker wandb: 3 steps were not delivered"
    assert [given[1] for call, given in library.CALLS if call == "log"] == [1, 4, 6]


def test_one_that_cannot_be_opened_loses_everything_but_the_run(
    fakes: Callable[[str], Any], folder: RunFolder
) -> None:
    del fakes("trackio").init
    said = track("trackio", folder, range(1, 4))
    assert "AttributeError" in said[0]
    assert said[1] == "tracker trackio: 3 steps were not delivered"


def test_one_that_hangs_holds_nothing_up(
    fakes: Callable[[str], Any], folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "CLOSING_SECONDS", 0.1)
    let_go = threading.Event()
    library = fakes("trackio")
    library.Run.log = lambda self, metrics, step=None: let_go.wait()
    said = track("trackio", folder, range(1, 6))
    let_go.set()
    assert "it takes too long" in said[0]
    assert "steps were not delivered" in said[1]


def test_unknown_and_missing_ones_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        first_checks.check_trackers(
            check_recipe({**NAMED, "monitor": {"trackers": ["tensorbord"]}}, "test")
        )
    for name in trackers.TRACKERS.names():
        if find_spec(name) is None:
            with pytest.raises(UserError, match=rf"pip install 'turnwise\[{name}\]'"):
                check_trackers([name])


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_the_fakes_have_the_names_of_the_libraries_arguments(name: str) -> None:
    real = pytest.importorskip(name, reason=f"{name} is not installed: its fake is not compared")
    fake: dict[str, Any] = {}
    exec((FAKES / f"{name}.py").read_text(), fake)
    for ours, theirs in (
        (fake["init"], real.init),
        (fake["Run"].log, real.Run.log),
        (fake["Run"].finish, real.Run.finish),
    ):
        assert (
            inspect.signature(ours).parameters.keys() <= inspect.signature(theirs).parameters.keys()
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_what_was_written(folder: RunFolder) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: not tried for real")
    assert track("tensorboard", folder, range(1, 6)) == []
    assert track("tensorboard", folder, range(4, 7)) == []
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.path / "trackers" / "tensorboard"))
    events.Reload()
    shown = [(event.step, round(event.value, 6)) for event in events.Scalars("reward/mean")]
    assert shown == [(step, step / 10) for step in range(1, 7)]
