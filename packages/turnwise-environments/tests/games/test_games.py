"""The text games: known values, oracles, snapshots, and what they refuse."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environment_playing import said
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError
from turnwise.types import Action, Step, Task, ToolCall, Trajectory, Turn
from turnwise_environments.games.bandit import RISKY_CHANCE, SAFE_PAY, Bandit
from turnwise_environments.games.base import DIRECTIONS
from turnwise_environments.games.frozen_lake import FrozenLake
from turnwise_environments.games.sokoban import MadeBoards, Sokoban, read_levels, solve

BOXOBAN = Path(__file__).parents[5] / "shared" / "data" / "boxoban"
GAMES: dict[str, dict[str, Any]] = {
    "bandit": {"pulls": 3},
    "frozen_lake": {"maps": 40, "slippery": True},
    "sokoban": {"tasks": {"boards": 20}},
}


@pytest.mark.slow
def test_as_many_boards_as_are_asked_for() -> None:
    """Of 1,000 draws 6 are a board that was there already."""
    made = Sokoban()
    rows = {tuple(task.data["rows"]) for s in ("train", "heldout") for task in made.tasks(s)}
    assert len(rows) == len(made.tasks("train")) + len(made.tasks("heldout")) == 1000
    with pytest.raises(ConfigError, match=r"there are only about \d+ such boards: lower"):
        Sokoban(MadeBoards(size=5, boards=1200))


def act(game: Environment, tool: str, **arguments: str) -> Step:
    return asyncio.run(game.step(Action("", calls=(ToolCall(tool, arguments),))))


def started(game: Environment, task: Task, seed: int = 0) -> Environment:
    fresh = game.fresh()
    asyncio.run(fresh.reset(task.public(), seed))
    return fresh


def played(game: Environment, task: Task) -> tuple[Environment, Trajectory]:
    """The oracle's episode."""
    fresh = started(game, task)
    turns = tuple(Turn(action, asyncio.run(fresh.step(action))) for action in game.oracle(task))
    trajectory = Trajectory(task, "g", 0, 0, turns=turns)
    return fresh, replace(trajectory, verdict=asyncio.run(fresh.verify(trajectory)))


def values(table: Any, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Success within so many moves of a random and of a perfect player, by dynamic programming."""
    uniform, best = np.zeros(len(table)), np.zeros(len(table))
    for _ in range(horizon):
        returns = [
            [
                [
                    sum(p * (r + (not over) * v[s]) for p, s, r, over in table[state][a])
                    for a in range(4)
                ]
                for state in range(len(table))
            ]
            for v in (uniform, best)
        ]
        uniform, best = np.mean(returns[0], axis=1), np.max(returns[1], axis=1)
    return uniform, best


@pytest.mark.parametrize(
    ("size", "horizon", "random", "optimal"), [(4, 100, 0.01394, 0.7442), (8, 200, 0.0019, 0.9132)]
)
def test_the_known_values_of_the_standard_lakes(
    size: int, horizon: int, random: float, optimal: float
) -> None:
    lake = FrozenLake(size=size, slippery=True, maps=0)
    uniform, best = values(lake.table(lake.tasks("heldout")[0]), horizon)
    assert uniform[0] == pytest.approx(random, abs=5e-6)
    assert best[0] == pytest.approx(optimal, abs=5e-5)


@pytest.mark.slow
def test_slipping_is_as_frequent_as_it_should_be() -> None:
    """From the corner, `right` slips: a third each right, down, and (into the wall) back up."""
    lake = FrozenLake(slippery=True, maps=0)
    task = lake.tasks("train")[0]
    seen = []
    for seed in range(1500):
        game = started(lake, task, seed)
        act(game, "move", direction="right")
        seen.append(vars(game)["_play"].scene)
    assert {state: seen.count(state) / 1500 for state in set(seen)} == pytest.approx(
        {0: 1 / 3, 1: 1 / 3, 4: 1 / 3}, abs=0.04
    )


@pytest.mark.parametrize("name", GAMES)
def test_a_restored_game_goes_on_as_the_one_it_was_taken_from(name: str) -> None:
    game = make_environment(name, GAMES[name])
    task = game.tasks("train")[0]
    arguments = (
        [{"arm": arm} for arm in task.data["names"]]
        if name == "bandit"
        else [{"direction": direction} for direction in DIRECTIONS]
    )
    tool = "pull" if name == "bandit" else "move"
    for first, second in itertools.product(arguments, repeat=2):
        whole, other = started(game, task, seed=5), started(game, task, seed=6)
        act(whole, tool, **first)
        other.restore(whole.snapshot())
        ends = [act(one, tool, **second) for one in (whole, other)]
        assert ends[0].observation == ends[1].observation
        assert ends[0].reward == ends[1].reward
        assert whole.snapshot() == other.snapshot()


def test_sokobans_rewards_are_those_of_ragen() -> None:
    board = ("#####", "#@$.#", "#####")
    game = Sokoban(MadeBoards(boards=1))
    task = Task("t", "", data={"rows": list(board)})
    fresh, trajectory = played(game, task)
    assert trajectory.turn_rewards is not None
    assert trajectory.turn_rewards.tolist() == pytest.approx([-0.1 + 1 + 10])
    assert trajectory.reward is None  # the outcome is not set here
    assert vars(fresh)["_play"].won
    assert solve(("#####", "#@.$#", "#####")) is None


def test_a_push_against_a_wall_or_a_box_does_nothing() -> None:
    for board in (("#####", "##$@#", "#.  #", "#####"), ("######", "#$$@.#", "#.   #", "######")):
        game = started(Sokoban(MadeBoards(boards=1)), Task("t", "", data={"rows": list(board)}))
        before = vars(game)["_play"].scene
        act(game, "move", direction="left")
        assert vars(game)["_play"].scene == before


def test_boxoban_levels_are_read_and_solved(tmp_path: Path) -> None:
    file = tmp_path / "levels.txt"
    file.write_text("; 0\n#####\n#@$.#\n#####\n\n; 1\n######\n#@ $.#\n######\n")
    assert [len(solve(board) or []) for board in read_levels(file)] == [1, 2]
    file.write_text("; 0\n#####\n#@x.#\n#####\n")
    with pytest.raises(DataError, match=r"levels.txt:3: not a line"):
        read_levels(file)
    file.write_text("; 0\n#####\n#@$ #\n#####\n")
    with pytest.raises(DataError, match=r"levels.txt:2: a board has one player"):
        read_levels(file)
    with pytest.raises(DataError, match="no Boxoban levels"):
        read_levels(tmp_path / "..")


@pytest.mark.skipif(not BOXOBAN.is_dir(), reason="the real levels are not here")
def test_boxobans_own_levels() -> None:
    boards = read_levels(BOXOBAN)
    assert len(boards) > 500
    assert all(len(board) == 10 for board in boards)


@pytest.mark.long
def test_the_bandits_pay() -> None:
    bandit = Bandit(pulls=1)
    paid: dict[bool, list[float]] = {True: [], False: []}
    for seed, task in enumerate([*bandit.tasks("train")] * 2):
        for arm in task.data["names"]:
            step = act(started(bandit, task, seed), "pull", arm=arm)
            assert step.done
            assert step.reward is not None
            paid[arm == task.data["risky"]].append(step.reward)
    assert set(paid[False]) == {SAFE_PAY}
    assert np.mean(paid[True]) == pytest.approx(RISKY_CHANCE, abs=0.04)
    risky_first = [task.data["risky"] == task.data["names"][0] for task in bandit.tasks("train")]
    assert 0.4 < np.mean(risky_first) < 0.6


@pytest.mark.parametrize("name", GAMES)
def test_what_a_game_cannot_do_is_told_to_the_agent(name: str) -> None:
    game = make_environment(name, GAMES[name])
    fresh = started(game, game.tasks("train")[0])
    key, tool = ("arm", "pull") if name == "bandit" else ("direction", "move")
    step = act(fresh, tool, **{key: "nowhere"})
    assert "Error: there is no" in said(step)
    assert not step.done
    assert step.reward == 0
    given_up = asyncio.run(fresh.step(Action("", answer="enough")))
    assert given_up.done
    assert given_up.abort
