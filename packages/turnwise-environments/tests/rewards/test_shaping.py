"""Shaping by a potential: what it pays in each step and in all, and what is none is refused."""

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
REPORTED = {"progress": RewardPart(-1, 1, scope=Scope.TURNS)}


def reported(*changes: float) -> Trajectory:
    """An episode whose environment reports these changes of a share, one for each turn."""
    return reporting(episode(*[call("go") for _ in changes]), progress=changes)


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


@given(st.lists(st.floats(-9, 9), max_size=6))
def test_each_step_is_worth_what_the_potential_changes(phi: list[float]) -> None:
    """Which leaves the best policy what it is: an episode's return changes by the first state's."""
    found = shaping_rewards(phi, GAMMA)
    changes = [GAMMA * new - old for old, new in pairwise([*phi, 0.0])]
    assert found == pytest.approx(changes)
    returned = sum(GAMMA**t * reward for t, reward in enumerate(found))
    assert returned == pytest.approx(-phi[0] if phi else 0.0, abs=1e-9)
    assert sum(shaping_rewards(phi)) == pytest.approx(-phi[0] if phi else 0.0, abs=1e-9)


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
