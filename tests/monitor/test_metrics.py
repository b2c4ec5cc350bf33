"""What nothing was measured for is absent, in the metrics and in what is said of a step."""

from dataclasses import replace

import numpy as np
import pytest

from tests.learning.building import random_trajectory
from turnwise.monitor.metrics import finite, rollout_metrics, step_text
from turnwise.types import Action, Group, Step, ToolCall, ToolResult, Turn

Rewards = list[float | None]
MEASURED_OF_GRADES = {
    "reward/mean",
    "reward/std",
    "reward/group_std",
    "groups/all_equal",
    "rollout/success",
}


def groups(*rewards: Rewards) -> list[Group]:
    generator = np.random.default_rng(0)
    return [
        Group(
            f"g{n}", tuple(random_trajectory(generator, f"g{n}", e, r) for e, r in enumerate(row))
        )
        for n, row in enumerate(rewards)
    ]


def test_a_step_without_a_grade_has_no_reward() -> None:
    metrics = rollout_metrics(groups([None, None], [None]))
    assert not MEASURED_OF_GRADES & metrics.keys()
    assert metrics["rollout/ungraded"] == metrics["rollout/episodes"] == 3
    assert "reward" not in step_text(metrics, None)


def test_the_ungraded_are_counted_and_groups_of_one_grade_have_no_spread() -> None:
    (group,) = groups([1.0, 0.0, None])
    metrics = rollout_metrics([group])
    assert (metrics["reward/mean"], metrics["reward/group_std"]) == (0.5, 0.5)
    assert metrics["rollout/ungraded"] == metrics["outcome/infrastructure_step"] == 1
    sampled = sum(int(member.tokens.mask.sum()) for member in group.trajectories)
    assert metrics["rollout/tokens_sampled"] == sampled
    metrics = rollout_metrics(groups([1.0, None], [0.0]))
    assert metrics["reward/mean"] == 0.5
    assert not {"reward/group_std", "groups/all_equal"} & metrics.keys()
    assert rollout_metrics(groups([1.0, 1.0], [0.0]))["groups/all_equal"] == 1
    assert "rollout/tool_success" not in metrics, "no tool was called"


def test_recovery_is_of_episodes_with_a_failed_call() -> None:
    (group,) = groups([1.0, 0.0, 0.0, 1.0])
    call = ToolCall("python", {"code": "1"})

    def turn(*worked: bool) -> Turn:
        return Turn(Action("x"), Step(results=tuple(ToolResult(call, "", ok) for ok in worked)))

    turns = [(turn(False), turn(True)), (turn(False),), (turn(True, True),), (turn(),)]
    members = [
        replace(one, turns=played) for one, played in zip(group.trajectories, turns, strict=True)
    ]
    metrics = rollout_metrics([replace(group, trajectories=tuple(members))])
    assert metrics["rollout/calling"] == 0.75
    assert metrics["rollout/recovered"] == 0.5
    worked = rollout_metrics([replace(group, trajectories=tuple(members[2:]))])
    assert "rollout/recovered" not in worked


def test_parts_of_the_reward_and_turn_rewards_are_means_over_what_is_graded() -> None:
    (group,) = groups([1.0, 0.0, None])
    rewarded = Turn(Action("x"), Step(reward=0.5))
    members = [
        replace(one, verdict=one.verdict and replace(one.verdict, parts={"f1": 0.4 * n}))
        for n, one in enumerate(group.trajectories)
    ]
    members[0] = replace(members[0], turns=(rewarded, rewarded))
    metrics = rollout_metrics([replace(group, trajectories=tuple(members))])
    assert metrics["reward/parts/f1"] == pytest.approx(0.2)
    assert metrics["reward/turns"] == 1.0
    assert "reward/turns" not in rollout_metrics([group])


def test_a_step_is_said_by_what_was_measured() -> None:
    metrics = {"reward/mean": 0.25, "rollout/turns": 2.0, "policy/updates": 0.0}
    assert step_text(metrics, None) == "reward 0.25  turns 2.0  no update"
    told = "reward 0.25  turns 2.0  nothing learned: all are equal"
    assert step_text(metrics, "all are equal: choose others") == told
    moved = metrics | {"policy/updates": 1.0, "policy/weights_changed": 0.974}
    assert step_text(moved, None) == "reward 0.25  turns 2.0  weights changed 97%"
    assert step_text({}, None) == ""


def test_what_is_no_number_is_left_out() -> None:
    assert finite({"a": 1.0, "b": float("nan"), "c": float("inf")}) == {"a": 1.0}
