"""Shaping by a potential changes no best policy: by dynamic programming, over every policy's
value."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rewards.episodes import answer, call, episode, reporting
from turnwise.config import RewardConfig
from turnwise.errors import ConfigError
from turnwise.rewards.composition import Reward, make_reward
from turnwise.rewards.measuring import PartError
from turnwise.rewards.parts import REWARD_PARTS, RewardPart, Scope
from turnwise.types import Trajectory
from turnwise_environments.rewards.shaping import shaping, shaping_rewards

GAMMA = 0.9
STATES = range(5)
"""States 0 to 4 on a line; 4 ends the episode. From 1 and 2 one can go round in a circle."""
MOVES: dict[int, tuple[int, ...]] = {0: (1, 0), 1: (2, 0), 2: (3, 1), 3: (4, 2)}
"""The states to which each state's two actions lead."""
Rewards = Callable[[int, int], float]


def goal(state: int, new: int) -> float:
    return float(new == 4)


def best_actions(rewards: Rewards) -> dict[int, list[int]]:
    """The actions of the highest value in each state, by value iteration."""
    values = dict.fromkeys(STATES, 0.0)

    def worth(state: int) -> list[float]:
        return [rewards(state, new) + GAMMA * values[new] for new in MOVES[state]]

    for _ in range(500):
        values |= {state: max(worth(state)) for state in MOVES}
    return {
        state: [n for n, value in enumerate(worth(state)) if value > max(worth(state)) - 1e-9]
        for state in MOVES
    }


def shaped(phi: Sequence[float]) -> Rewards:
    """The goal's reward, and F of the step from a state to the next; the end has no potential."""

    def rewards(state: int, new: int) -> float:
        known = [phi[state]] if new == 4 else [phi[state], phi[new]]
        return goal(state, new) + shaping_rewards(known, GAMMA)[0]

    return rewards


POTENTIALS = [(0.0, 0.25, 0.5, 0.75, 9.0), (3.0, -7.0, 5.0, 0.0, 1.0), (-1.0, -1.0, -1.0, -1.0, 0)]


@pytest.mark.parametrize("phi", POTENTIALS)
def test_a_potential_leaves_the_best_policy_what_it_is(phi: Sequence[float]) -> None:
    assert best_actions(goal) == {state: [0] for state in MOVES}  # forward
    assert best_actions(shaped(phi)) == best_actions(goal)


REPORTED = {"progress": RewardPart(-1, 1, scope=Scope.TURNS)}


def reported(*changes: float) -> Trajectory:
    """An episode whose environment reports these changes of a share, one for each turn."""
    return reporting(episode(*[call("go") for _ in changes]), progress=changes)


@pytest.mark.long
@pytest.mark.parametrize("phi", [(0.0, 0.25, 0.5, 0.75), (0.0, 1.0, 0.0, 0.5), (0.0, 0.9, 0.9, 0)])
def test_shaping_by_what_is_reported_leaves_the_best_policy_what_it_is(
    phi: Sequence[float],
) -> None:
    """With the rewards that the built-in part gives to each step of an episode."""

    def rewards(state: int, new: int) -> float:
        to_state, step = phi[state] - phi[0], (0.0 if new == 4 else phi[new] - phi[state])
        after = [] if new == 4 else [0.0]
        return goal(state, new) + shaping(reported(to_state, step, *after), gamma=GAMMA)[1]

    assert best_actions(rewards) == best_actions(goal) == {state: [0] for state in MOVES}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_the_sum_of_shaping_telescopes(shares: list[float]) -> None:
    changes = [new - old for old, new in pairwise([0.0, *shares])]
    found = shaping(reported(*changes))
    assert sum(found) == pytest.approx(0.0)
    assert found[:-1] == pytest.approx(changes[:-1])
    assert found[-1] == pytest.approx(-(shares[-2] if len(shares) > 1 else 0.0))
    discounted = shaping(reported(*changes), gamma=GAMMA)
    assert sum(GAMMA**t * one for t, one in enumerate(discounted)) == pytest.approx(0.0)
    assert all(-1 <= one <= 1 for one in [*found, *discounted])
    assert sum(discounted) <= 1e-9


def test_shaping_needs_a_share() -> None:
    with pytest.raises(PartError, match=r"progress adds up to 2, and a share is 0 to 1"):
        shaping(reported(1.0, 1.0, 1.0))
    with pytest.raises(PartError, match="its parts: progress"):
        shaping(reported(1.0), of="gain")
    assert shaping(reported()) == []


def test_shaping_cannot_outvote_success() -> None:
    """Without a discount its sum is 0 in every episode, whatever its weight."""

    def made(**options: Any) -> Reward:
        config = RewardConfig.model_validate(
            {"parts": {"shaping": {"weight": 5.0, "options": options}}}
        )
        return make_reward(config, REPORTED, turns=8)

    assert made().bounds(success=True, step=0) == (1.0, 1.0)
    with pytest.raises(ConfigError, match="parts can outvote success"):
        made(gamma=0.9)


@pytest.mark.parametrize(
    ("options", "reported", "reason"),
    [
        ({"of": "progres"}, REPORTED, r"shaping\.options\.of 'progres': did you mean 'progress'"),
        ({}, {"progress": RewardPart(0, 1)}, "reads 'progress', and .* no number of turns"),
        ({}, {"gain": RewardPart(0, 1, scope=Scope.TURNS)}, "known: gain"),
    ],
)
def test_shaping_by_what_is_not_reported_is_refused_before_anything_is_played(
    options: dict[str, str], reported: dict[str, RewardPart], reason: str
) -> None:
    config = RewardConfig.model_validate({"parts": {"shaping": {"options": options}}})
    with pytest.raises(ConfigError, match=reason):
        make_reward(config, reported, turns=8)


def test_an_episodes_return_changes_by_the_first_states_potential() -> None:
    phi = [0.5, 2.0, -1.0, 0.25]
    turns = shaping_rewards(phi, GAMMA)
    assert sum(GAMMA**t * reward for t, reward in enumerate(turns)) == pytest.approx(-phi[0])
    assert sum(shaping_rewards(phi)) == pytest.approx(-phi[0])
    assert shaping_rewards([]) == []


OWN = """
from turnwise_environments.rewards.shaping import potential

@potential("closeness", 0, 1)
def closeness(trajectory, of: float = 2.0):
    \"\"\"Share of the turns that lie behind.\"\"\"
    return [n / of for n in range(len(trajectory.turns))]

@potential("discounted", -1, 2, gamma=0.5)
def discounted(trajectory):
    return [2.0 for turn in trajectory.turns]
"""


def part(tmp_path: Path, name: str) -> RewardPart:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    return REWARD_PARTS.get(f"{file}:{name}")


def test_a_declared_potential_is_a_part_of_turns(tmp_path: Path) -> None:
    found = part(tmp_path, "closeness")
    assert (found.scope, found.low, found.high, found.total) == (Scope.TURNS, -1, 1, (-1, 0))
    assert found.bounds(turns=8) == (-1, 0)
    assert found.description == "Share of the turns that lie behind."
    assert found.function(episode(call("a"), call("b"), answer("c"))) == [0.5, 0.5, -1.0]
    assert found.function(episode(call("a"), answer("c")), of=4.0) == [0.25, -0.25]


def test_the_range_of_a_discounted_one_is_that_of_its_turns(tmp_path: Path) -> None:
    found = part(tmp_path, "discounted")
    assert (found.low, found.high, found.total) == (0.5 * -1 - 2, 0.5 * 2 + 1, None)
    assert found.function(episode(call("a"), answer("b"))) == [-1.0, -2.0]
