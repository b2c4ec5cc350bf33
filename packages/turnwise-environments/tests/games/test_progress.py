"""The way to the goal as progress of turns: what is walked to and fro adds up to nothing."""

from typing import Any

import pytest

from environment_playing import answered, calling, judged, opened, prototype, verdict_of
from turnwise.environments.base import Environment
from turnwise.environments.derived import guarded
from turnwise.rewards.parts import REWARD_PARTS
from turnwise.types import Action, Task
from turnwise_environments.games.frozen_lake import FrozenLake
from turnwise_environments.games.sokoban import LevelFile, Sokoban
from turnwise_environments.measurement import all_tasks, has_oracle, played_all, random_script

LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
"""gymnasium's standard map: 6 moves from the start."""
BOARD = ("#######", "#@    #", "# $ . #", "#     #", "#######")
"""The box is 2 places left of its target."""

lake = prototype("frozen_lake", maps=40)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Sokoban:
    file = tmp_path_factory.mktemp("boards") / "one.txt"
    file.write_text("\n".join(["; 0", *BOARD]))
    return Sokoban(LevelFile(str(file), heldout_share=0.0))


def moves(*directions: str) -> list[Action]:
    return [calling("move", direction=direction) for direction in directions]


def progress(game: Environment, rows: tuple[str, ...], *actions: Action) -> list[float]:
    task = Task("one", "?", data={"rows": list(rows)})
    return list(judged(game, task, *actions).turn_parts["progress"])


def test_each_step_on_the_way_is_its_share(lake: FrozenLake) -> None:
    way = moves("down", "down", "right", "down", "right", "right")
    assert progress(lake, LAKE, *way) == pytest.approx([1 / 6] * 6)
    away = moves("right", "left", "left", "up")
    assert progress(lake, LAKE, *away) == pytest.approx([1 / 6, -1 / 6, 0.0, 0.0])


def test_what_was_reached_is_lost_in_a_hole(lake: FrozenLake) -> None:
    fall = moves("right", "right", "right", "down")
    found = progress(lake, LAKE, *fall)
    assert sum(found) == pytest.approx(0.0)
    assert found[-1] < 0.0


def test_several_moves_of_a_turn_and_turns_without_one(lake: FrozenLake) -> None:
    both = Action("", calls=(*moves("down")[0].calls, *moves("down")[0].calls))
    unparsed, wrong = Action("", error="no call"), calling("move", direction="north")
    found = progress(lake, LAKE, unparsed, both, wrong, answered("I give up"))
    assert found == pytest.approx([0.0, 2 / 6, 0.0, 0.0])


def test_pushes_count_and_steps_do_not(board: Sokoban) -> None:
    solved = moves("down", "right", "right")
    assert progress(board, BOARD, *solved) == [0.0, 0.5, 0.5]
    past_it = moves("down", "right", "up", "right", "right", "down", "left")
    assert progress(board, BOARD, *past_it) == [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -0.5]


@pytest.mark.parametrize("name", ["lake", "board"])
def test_moves_that_a_rule_held_back_are_no_way(name: str, lake: FrozenLake) -> None:
    (game,) = opened("sokoban", {"tasks": {"boards": 20}}) if name == "board" else [lake]
    dry = guarded(game, {"move": "dry_run"})
    task = all_tasks(game)[0]
    assert not any(judged(dry, task, *game.oracle(task)).turn_parts["progress"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frozen_lake", {"maps": 40, "slippery": True}),
        ("sokoban", {"tasks": {"boards": 20}}),
        pytest.param(
            *("sokoban", {"tasks": {"boards": 10, "boxes": 2, "size": 7}}), marks=pytest.mark.slow
        ),
    ],
)
def test_all_of_it_is_had_where_the_game_is_won(name: str, options: dict[str, Any]) -> None:
    """And shaping by it adds up to nothing, won or lost."""
    (game,) = opened(name, options)
    tasks = all_tasks(game)
    scripts = [random_script(game, task) for task in tasks]
    if has_oracle(game, tasks):
        scripts[::2] = [game.oracle(task) for task in tasks[::2]]
    shaping = REWARD_PARTS.get("shaping").function
    assert shaping is not None
    won = set()
    for play in played_all(game, tasks, scripts):
        verdict = verdict_of(play)
        assert (sum(verdict.turn_parts["progress"]) == pytest.approx(1.0)) is verdict.success
        assert sum(shaping(play.trajectory)) == pytest.approx(0.0)
        won.add(verdict.success)
    assert won == {True, False}
