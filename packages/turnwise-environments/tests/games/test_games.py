"""The text games: known values, oracles, rewards, refusals, the long walk, progress of turns."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environment_playing import (
    answered,
    calling,
    judged,
    opened,
    played,
    prototype,
    said,
    steps_of,
    verdict_of,
)
from turnwise.environments.base import Environment
from turnwise.environments.derived import equipped, guarded
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError
from turnwise.rewards.parts import REWARD_PARTS
from turnwise.types import Action, Step, Task
from turnwise_environments.choosing import all_tasks
from turnwise_environments.games import sokoban
from turnwise_environments.games.bandit import RISKY_CHANCE, SAFE_PAY, Bandit
from turnwise_environments.games.doors import Doors
from turnwise_environments.games.frozen_lake import FrozenLake
from turnwise_environments.games.long_walk import LongWalk
from turnwise_environments.games.sokoban import LevelFile, MadeBoards, Sokoban, read_levels, solve
from turnwise_environments.measurement import oracles, played_all, random_script, success

GAMES: dict[str, dict[str, Any]] = {
    "bandit": {"pulls": 3},
    "frozen_lake": {"maps": 40, "slippery": True},
    "sokoban": {"tasks": {"boards": 20}},
}


@pytest.mark.slow
def test_boards_that_nobody_could_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sokoban, "DRAWS", 100)  # the real ones take a minute
    with pytest.raises(ConfigError, match="no board of 6 x 6 with 6 boxes"):
        Sokoban(MadeBoards(boxes=6))


@pytest.mark.long
def test_as_many_boards_as_are_asked_for() -> None:
    """There are some 512 of this size: many draws are a board that was there already."""
    made = Sokoban(MadeBoards(size=5, boards=200))
    rows = {tuple(task.data["rows"]) for s in ("train", "heldout") for task in made.tasks(s)}
    assert len(rows) == len(made.tasks("train")) + len(made.tasks("heldout")) == 200
    with pytest.raises(ConfigError, match=r"there are only about \d+ such boards: lower"):
        Sokoban(MadeBoards(size=5, boards=600))


async def acted(
    game: Environment, task: Task, action: Action, seed: int = 0
) -> tuple[Step, Any, Any]:
    """The first step of an episode, and the scene before and after it."""
    fresh: Any = game.fresh()
    await fresh.reset(task.public(), seed)
    before = fresh._play.scene
    return await fresh.step(action), before, fresh._play.scene


@pytest.mark.parametrize("size", [4, 8])
def test_the_standard_lakes_are_gymnasiums(size: int) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    lake = FrozenLake(size=size, slippery=True, maps=0)
    (task,) = lake.tasks("heldout")
    assert lake.tasks("train") == [task]
    theirs = gymnasium.make("FrozenLake-v1", map_name=f"{size}x{size}", is_slippery=True)
    assert lake.table(task) == theirs.unwrapped.P


@pytest.mark.slow
def test_fewer_lakes_than_are_asked_for_are_told() -> None:
    assert FrozenLake(size=2, maps=20).task_set.warnings == [
        "frozen_lake: 3 different maps were found, of 20 asked for"
    ]
    assert not FrozenLake(maps=20).task_set.warnings


@pytest.mark.parametrize(("size", "share", "least"), [(4, 0.1, 0.14), (8, 0.2, 0.32)])
def test_lakes_that_hardly_ever_have_a_way_are_refused(
    size: int, share: float, least: float
) -> None:
    """gymnasium draws until one has: without end, for a share near 0."""
    with pytest.raises(ConfigError, match=f"give {least} or more"):
        FrozenLake(size=size, frozen_share=share)
    assert FrozenLake(size=size, maps=4, frozen_share=least).tasks("train")


@pytest.mark.long
async def test_slipping_is_as_frequent_as_it_should_be() -> None:
    """From the corner, `right` slips: a third each right, down, and (into the wall) back up."""
    lake = FrozenLake(slippery=True, maps=0)
    task, right = lake.tasks("train")[0], calling("move", direction="right")
    seen = [(await acted(lake, task, right, seed))[2] for seed in range(1500)]
    assert {state: seen.count(state) / 1500 for state in set(seen)} == pytest.approx(
        {0: 1 / 3, 1: 1 / 3, 4: 1 / 3}, abs=0.04
    )


def test_sokobans_rewards_are_those_of_ragen() -> None:
    task = Task("t", "", data={"rows": ["#####", "#@$.#", "#####"]})
    game = Sokoban(MadeBoards(boards=1))
    play = played(game, task, *game.oracle(task))
    (step,) = steps_of(play)
    assert step.reward == pytest.approx(-0.1 + 1 + 10)
    assert verdict_of(play).success
    assert solve(("#####", "#@.$#", "#####")) is None


async def test_a_push_against_a_wall_or_a_box_does_nothing() -> None:
    for board in (("#####", "##$@#", "#.  #", "#####"), ("######", "#$$@.#", "#.   #", "######")):
        task = Task("t", "", data={"rows": list(board)})
        left = calling("move", direction="left")
        _, before, after = await acted(Sokoban(MadeBoards(boards=1)), task, left)
        assert after == before


def test_boxoban_levels_are_read_and_solved(tmp_path: Path) -> None:
    file = tmp_path / "levels.txt"
    file.write_text("; 0\n#####\n#@$.#\n#####\n\n; 1\n######\n#@ $.#\n######\n")
    assert [len(solve(board) or []) for board in read_levels(file)[0]] == [1, 2]
    for board, problem in (
        ("#####\n#@x.#\n#####", "not a Sokoban board: it has 'x'"),
        ("#####\n#@$ #\n#####", "a board has one player"),
        ("## ##\n#@$.#\n#####", "there is a way out"),
        ("####\n#@*#\n####", "all boxes are on targets"),
    ):
        file.write_text(f"; 0\n{board}\n")
        with pytest.raises(DataError, match=f"levels.txt, line 2: {problem}"):
            read_levels(file)
    file.write_bytes("; é\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_levels(file)
    file.write_text("; 0\n#####\n#@$ #\n#####\n; 1\n#####\n#@$.#\n#####\n")
    boards, told = read_levels(file)
    assert len(boards) == 1
    assert told == [
        f"{file}, line 2: a board has one player, and as many boxes as targets: left out"
    ]
    with pytest.raises(DataError, match="no Boxoban levels"):
        read_levels(tmp_path / "..")


@pytest.mark.long
async def test_the_bandits_pay() -> None:
    bandit = Bandit(pulls=1)
    paid: dict[bool, list[float]] = {True: [], False: []}
    for seed, task in enumerate([*bandit.tasks("train")] * 2):
        for arm in task.data["names"]:
            step, _, _ = await acted(bandit, task, calling("pull", arm=arm), seed)
            assert step.done
            assert step.reward is not None
            paid[arm == task.data["risky"]].append(step.reward)
    assert set(paid[False]) == {SAFE_PAY}
    assert np.mean(paid[True]) == pytest.approx(RISKY_CHANCE, abs=0.04)
    risky_first = [task.data["risky"] == task.data["names"][0] for task in bandit.tasks("train")]
    assert 0.4 < np.mean(risky_first) < 0.6


def test_each_move_has_a_chance_of_its_own() -> None:
    bandit = Bandit(pulls=3)
    tasks = bandit.tasks("train")[:8]
    scripts = [[calling("pull", arm=task.data["risky"])] * 3 for task in tasks]
    plays = played_all(bandit, tasks, scripts)
    assert any(len({step.reward for step in steps_of(play)}) > 1 for play in plays)


@pytest.mark.parametrize("name", GAMES)
def test_what_a_game_cannot_do_is_told_to_the_agent(name: str) -> None:
    game = make_environment(name, GAMES[name])
    key, tool = ("arm", "pull") if name == "bandit" else ("direction", "move")
    script = calling(tool, **{key: "nowhere"}), answered("enough")
    nowhere, given_up = steps_of(played(game, game.tasks("train")[0], *script))
    assert "Error: there is no" in said(nowhere)
    assert (nowhere.done, nowhere.reward) == (False, 0)
    assert (given_up.done, given_up.abort) == (True, True)


@pytest.mark.parametrize("kind", [Bandit, Doors])
def test_more_tasks_are_other_data(kind: type[Bandit | Doors]) -> None:
    assert kind(count=1).spec.data_hash != kind(count=2).spec.data_hash


def test_a_tool_that_the_recipe_adds_is_no_move() -> None:
    walk = equipped(LongWalk(length=2, count=2), ["calculate"])
    doors = equipped(Doors(count=1), ["calculate"])
    for game, move in ((walk, "go"), (doors, "open")):
        actions = random_script(game, all_tasks(game)[0])
        assert {action.calls[0].name for action in actions} == {move}


def go(door: str) -> Action:
    return calling("go", door=door)


def test_the_oracle_makes_300_calls_in_each_walk() -> None:
    walk = LongWalk(count=1)
    tasks = all_tasks(walk)
    plays = played_all(walk, tasks, [walk.oracle(task) for task in tasks])
    assert success(plays) == 1.0
    assert {len(play.trajectory.turns) for play in plays} == {300}
    assert all(play.trajectory.reward == pytest.approx(1.0) for play in plays)


@pytest.mark.slow
def test_the_standard_walks_on_a_shorter_way() -> None:
    """All 1,000, 12 rooms each; a random walker's success is what the environment says."""
    walk = LongWalk(length=12, herald_every=4)
    tasks = all_tasks(walk)
    assert len({task.id for task in tasks}) == 1000
    assert success(played_all(walk, tasks, [walk.oracle(task) for task in tasks])) == 1.0
    assert success(played_all(walk, tasks, [random_script(walk, task) for task in tasks])) == 0.0
    short = LongWalk(length=2)
    tasks = all_tasks(short)
    plays = played_all(short, tasks, [random_script(short, task) for task in tasks])
    assert success(plays) == pytest.approx(short.spec.reference_scores["random"], abs=0.03)


def followed(walk: LongWalk, hears: bool) -> float:
    """Success of one who reads the prompt and each room, as a person does."""
    won = 0
    for task in walk.tasks("train"):
        told = task.prompt.replace(";", " ").replace(",", " ").replace(".", " ").split()
        order = [word for word in told if word in ("red", "blue", "green", "gold", "white")]
        environment = walk.fresh()
        seen = asyncio.run(environment.reset(task.public(), 0)).content
        for _ in range(walk.length):
            line = seen.rpartition("Room")[2]
            if hears and "A herald" in line:
                first = line.partition("now on, ")[2].split()[0]
                order = [first, *(colour for colour in order if colour != first)]
            doors = line.rpartition("Doors: ")[2].rstrip(".").split(", ")
            step = asyncio.run(environment.step(go(next(c for c in order if c in doors))))
            seen = said(step)
            if step.done:
                break
        won += seen == "You are out."
    return won / len(walk.tasks("train"))


def test_what_is_shown_is_enough_and_heralds_have_to_be_heard() -> None:
    walk = LongWalk(length=30, herald_every=5, count=20)
    assert followed(walk, hears=True) == 1.0
    assert followed(walk, hears=False) < 0.2


def test_a_wrong_door_ends_the_walk_and_an_unknown_one_does_not() -> None:
    walk = LongWalk(length=5, count=4)
    task = walk.tasks("train")[0]
    right = [action.calls[0].arguments["door"] for action in walk.oracle(task)]
    door = next(one for one in walk._doors(task.data, 1) if one != right[1])
    script = go("purple"), go(right[0]), go(door)
    unknown, first, wrong = steps_of(played(walk, task, *script))
    assert "there is no 'purple' door; doors: " in said(unknown)
    assert (first.reward, first.done) == (pytest.approx(0.2), False)
    assert (wrong.reward, wrong.done) == (0.0, True)


def test_a_walk_that_is_cut_short_has_held_and_one_that_went_wrong_or_stood_still_has_not() -> None:
    walk = LongWalk(length=10, count=4)
    task = walk.tasks("train")[0]
    right = list(walk.oracle(task))
    shown = right[1].calls[0].arguments["door"]
    wrong = next(go(door) for door in walk._doors(task.data, 1) if door != shown)
    plays: dict[str, list[Action]] = {
        "all": right,
        "cut": right[:3],
        "wrong": [right[0], wrong],
        "unknown": [right[0], go("purple")],
        "nothing": [],
    }
    parts = {name: judged(walk, task, *script).parts for name, script in plays.items()}
    assert {name: (one["held"], one["walked"]) for name, one in parts.items()} == {
        "all": (1.0, 1.0),
        "cut": (1.0, 0.3),
        "wrong": (0.0, 0.1),
        "unknown": (0.0, 0.1),
        "nothing": (0.0, 0.0),
    }


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


def moves(words: str) -> list[Action]:
    return [calling("move", direction=direction) for direction in words.split()]


BOTH = Action("", calls=moves("down")[0].calls * 2)
UNPARSED, WRONG = Action("", error="no call"), calling("move", direction="north")
WAYS: dict[str, tuple[tuple[str, ...], list[Action], list[float]]] = {
    "each step is its share": (LAKE, moves("down down right down right right"), [1 / 6] * 6),
    "there and back": (LAKE, moves("right left left up"), [1 / 6, -1 / 6, 0.0, 0.0]),
    "all is lost in a hole": (
        LAKE,
        moves("right right right down"),
        [1 / 6, 1 / 6, -1 / 6, -1 / 6],
    ),
    "two moves of a turn, and turns without one": (
        *(LAKE, [UNPARSED, BOTH, WRONG, answered("I give up")]),
        [0.0, 2 / 6, 0.0, 0.0],
    ),
    "pushes count, and steps do not": (BOARD, moves("down right right"), [0.0, 0.5, 0.5]),
    "a box is pushed past its target": (
        *(BOARD, moves("down right up right right down left")),
        [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -0.5],
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_progress_of_turns(lake: FrozenLake, board: Sokoban, name: str) -> None:
    rows, actions, expected = WAYS[name]
    task = Task("one", "?", data={"rows": list(rows)})
    found = judged(lake if rows == LAKE else board, task, *actions).turn_parts["progress"]
    assert list(found) == pytest.approx(expected)


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
    if list(oracles(game, tasks[:1])):
        scripts[::2] = [game.oracle(task) for task in tasks[::2]]
    shaping = REWARD_PARTS.get("shaping").function
    won = set()
    for play in played_all(game, tasks, scripts):
        verdict = verdict_of(play)
        assert (sum(verdict.turn_parts["progress"]) == pytest.approx(1.0)) is verdict.success
        assert sum(shaping(play.trajectory)) == pytest.approx(0.0)
        won.add(verdict.success)
    assert won == {True, False}
