"""The temperature's line, and a horizon that grows with success and is all in its state."""

import json
from dataclasses import replace

import pytest

from tests.graded import group_of
from turnwise.config import RolloutConfig
from turnwise.environments.base import Budget
from turnwise.rollout.order import RolloutSchedule, temperature_at
from turnwise.rollout.runner import within
from turnwise.types import Group, Verdict

FALLING = RolloutConfig.model_validate(
    {"temperature": 1.0, "temperature_schedule": {"temperature": 0.4, "from_step": 2, "to_step": 8}}
)
GROWING = RolloutConfig.model_validate(
    {"max_turns": 6, "horizon": {"turns": 2, "grow_by": 3, "target": 0.5, "window": 2}}
)


def test_the_temperature_goes_in_a_straight_line() -> None:
    found = [temperature_at(FALLING, step) for step in (0, 2, 5, 8, 100)]
    assert found == pytest.approx([1.0, 1.0, 0.7, 0.4, 0.4])
    assert temperature_at(RolloutConfig(temperature=0.8), 5) == 0.8
    schedule = RolloutSchedule(FALLING)
    assert schedule.limits(5).temperature == pytest.approx(0.7)
    assert schedule.limits(5).max_turns == FALLING.max_turns
    assert schedule.metrics(5, 6) == pytest.approx({"rollout/temperature": 0.7})


def test_the_horizon_grows_with_success() -> None:
    schedule = RolloutSchedule(GROWING)
    turns = []
    for success in (False, True, True, True, True, True, True):
        turns.append(schedule.limits(0).max_turns)
        schedule.measure([group_of(success, success, None)], turns[-1])
    # A mean of (0, 1) reaches 0.5; at the new horizon two steps are counted anew; 6 is the most.
    assert turns == [2, 2, 5, 5, 6, 6, 6]


def test_the_horizon_grows_with_a_part_in_place_of_success() -> None:
    horizon = {"turns": 2, "target": 0.5, "window": 1, "part": "held"}
    schedule = RolloutSchedule(RolloutConfig.model_validate({"max_turns": 3, "horizon": horizon}))
    for held, turns in ((0.4, 2), (0.5, 3)):
        (group,) = [group_of(held < 0.5)]
        (one,) = group.trajectories
        verdict = Verdict(0.0, held < 0.5, {"held": held})
        schedule.measure([Group("a", (replace(one, verdict=verdict),))], 2)
        assert schedule.limits(0).max_turns == turns


def test_steps_without_a_grade_or_of_a_shorter_horizon_count_nothing() -> None:
    """The latter were sampled ahead, and come after the horizon has grown."""
    schedule = RolloutSchedule(GROWING)
    for _ in range(3):
        schedule.measure([group_of(None, None)], 2)
    schedule.measure([group_of(True)], 2)
    assert schedule.limits(0).max_turns == 2
    schedule = RolloutSchedule(GROWING)
    for _ in range(4):
        schedule.measure([group_of(True)], 2)
    assert schedule.limits(0).max_turns == 5


def test_its_state_is_all_that_it_remembers() -> None:
    schedule = RolloutSchedule(GROWING)
    schedule.measure([group_of(True)], 2)
    other = RolloutSchedule(GROWING)
    other.load_state(json.loads(json.dumps(schedule.state())))
    for one in (schedule, other):
        one.measure([group_of(True)], 2)
        assert one.limits(0).max_turns == 5


def test_a_budget_only_lowers() -> None:
    limits = RolloutConfig(max_turns=4, max_tokens=500, max_tool_calls=3)
    found = within(limits, Budget(max_turns=9, max_tokens=100, max_tool_calls=0))
    assert (found.max_turns, found.max_tokens, found.max_tool_calls) == (4, 100, 0)
    assert within(limits, Budget()) == limits
