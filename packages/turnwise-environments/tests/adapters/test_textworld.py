"""TextWorld: the real package, with games made here."""

import asyncio
import shutil
from pathlib import Path

import pytest

pytest.importorskip(
    "textworld", reason="textworld is not installed: pip install 'turnwise[textworld]'"
)

from environment_playing import calling, played, said, steps_of, verdict_of
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError
from turnwise.types import Action
from turnwise_environments.adapters.textworld import GameFolder, MadeGames, TextWorld, _is_won
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import is_concurrent, is_restorable

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(cache))


def act(command: str) -> Action:
    return calling("act", command=command)


@pytest.mark.slow
def test_the_walkthrough_wins_and_is_told_to_nobody() -> None:
    environment = TextWorld(MadeGames(count=3), admissible=True)
    tasks = all_tasks(environment)
    assert len(tasks) == 3
    assert not any(
        command in f"{task.prompt} {task.data}"
        for task in tasks
        for command in task.secret["walkthrough"]
    )
    play = played(environment, tasks[0], *environment.oracle(tasks[0]))
    assert verdict_of(play).success
    assert play.trajectory.reward == 1.0
    first, *_, last = steps_of(play)
    assert (first.done, last.done, last.reward) == (False, True, 1.0)
    assert "\nYou can: " in said(first)
    assert "____" not in play.seen[0]  # the title in large letters


@pytest.mark.slow
def test_sixteen_at_once_and_a_step_limit() -> None:
    environment = TextWorld(MadeGames(count=3), max_steps=2)
    tasks = all_tasks(environment)
    assert asyncio.run(is_concurrent(environment, tasks * 5))
    assert asyncio.run(is_restorable(environment, tasks[:1]))
    play = played(environment, tasks[0], *[act("look")] * 9)
    assert len(play.trajectory.turns) == 2
    *_, step = steps_of(play)
    assert (step.done, step.truncated) == (True, True)


def test_what_is_no_command() -> None:
    environment = TextWorld(MadeGames(count=3))
    play = played(environment, all_tasks(environment)[0], act("fly"), act(" "), act("x" * 999))
    said = play.trajectory.observed
    assert "fly" in said[0] or "verb" in said[0]
    assert said[1] == said[2] == "Error: a command has 1 to 200 plain characters"


@pytest.mark.parametrize(
    "command",
    [
        "\0",
        "\\boxed{look}",
        "look\0",
        "script",
        "Save",
        "look. save",
        "look then script",
        "TRANSCRIPTS",
        "quit",
        "é",
    ],
)
def test_no_command_reaches_the_interpreter(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero bytes and backslashes hung it for ever; `script`, `save` wrote where it was started."""
    environment = TextWorld(MadeGames(count=3))
    task = all_tasks(environment)[0]
    monkeypatch.chdir(tmp_path)
    play = played(environment, task, act(command), *environment.oracle(task))
    assert play.trajectory.observed[0].startswith("Error: ")
    assert verdict_of(play).success
    assert not list(tmp_path.iterdir())


def test_a_game_that_its_walkthrough_does_not_win_is_passed_over() -> None:
    file = Path(all_tasks(TextWorld(MadeGames(count=3)))[0].data["file"])
    walkthrough = all_tasks(TextWorld(MadeGames(count=3)))[0].secret["walkthrough"]
    assert _is_won(file, walkthrough)
    assert not _is_won(file, walkthrough[:-1])


def test_games_of_ones_own(cache: Path, tmp_path: Path) -> None:
    made = TextWorld(MadeGames(count=3))
    for task in all_tasks(made):
        file = Path(task.data["file"])
        for suffix in (".z8", ".json"):
            shutil.copy(file.with_suffix(suffix), tmp_path)
    own = TextWorld(GameFolder(str(tmp_path)))
    assert {task.id for task in all_tasks(own)} == {task.id for task in all_tasks(made)}
    told = next(tmp_path.glob("*.json"))
    for text in ("", "[]", "{}"):
        told.write_text(text)
        with pytest.raises(DataError, match="TextWorld has not written it"):
            TextWorld(GameFolder(str(tmp_path)))
    told.unlink()
    with pytest.raises(DataError, match="json is not beside it"):
        TextWorld(GameFolder(str(tmp_path)))
    with pytest.raises(DataError, match="no file that ends with"):
        TextWorld(GameFolder(str(tmp_path / "none")))
    assert str(cache) in str(all_tasks(made)[0].data["file"])


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"rooms": 0}, "'tasks.rooms' is 0: give a value of at least 1"),
        ({"folder": "here", "rooms": 5}, "'tasks.rooms' does not go with tasks.folder"),
        ({"room": 2}, "did you mean 'tasks.rooms'"),
    ],
)
def test_bad_options(tasks: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment("textworld", {"tasks": tasks})
