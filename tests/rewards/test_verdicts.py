"""Verdicts that are none: every number and the success, by type and value."""

import math
from typing import Any

import numpy as np
import pytest

from tests.rewards.episodes import answer, call, episode
from turnwise.rewards.verdicts import VerdictError, checked_verdict
from turnwise.types import Verdict

TWO_TURNS = episode(call("search"), answer("it"))


def test_a_verdict_has_plain_numbers_afterwards() -> None:
    given = Verdict(
        np.float32(0.5),
        np.bool_(True),
        {"rows": 1},
        turn_parts={"gain": np.array([0.5, 0.25])},
        turn_rewards=[1, 0],
    )
    found = checked_verdict(TWO_TURNS, given)
    assert found == Verdict(0.5, True, {"rows": 1.0}, "", {"gain": [0.5, 0.25]}, [1.0, 0.0])
    assert type(found.reward) is float
    assert type(found.success) is bool
    assert checked_verdict(TWO_TURNS, Verdict(1.0, True, turn_rewards=())).turn_rewards == []
    assert checked_verdict(TWO_TURNS, Verdict(1.0, True)).turn_rewards is None


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "None instead of a Verdict"),
        (True, "True instead of a Verdict"),
        (Verdict(0.0, "no"), "success is 'no' instead of True or False"),
        (Verdict(0.0, math.nan), "success is nan instead"),
        (Verdict(0.0, 0.3), "success is 0.3 instead"),
        (Verdict(0.0, None), "success is None instead"),
        (Verdict(0.0, np.array([True, False])), "success is array"),
        (Verdict("1", True), "reward is '1' instead of a number"),
        (Verdict(True, True), "reward is True instead of a number"),
        (Verdict(math.inf, True), "reward inf is not a finite number"),
        (Verdict(1.0, True, {"style": math.nan}), "part style nan is not a finite number"),
        (Verdict(1.0, True, turn_parts={"gain": [0, math.nan]}), "part gain of turn 1 nan is not"),
        (Verdict(1.0, True, turn_rewards=[0.5, math.inf]), "reward of turn 1 inf is not a finite"),
        (Verdict(1.0, True, {"rows": True}), "part rows is True instead of a number"),
        (Verdict(1.0, True, {"rows": "all"}), "part rows is 'all' instead"),
        (Verdict(1.0, True, [1.0]), "parts is .* instead of numbers by name"),
        (Verdict(1.0, True, turn_parts={"gain": [1.0]}), "part gain: 1 numbers for 2 turns"),
        (Verdict(1.0, True, turn_parts={"gain": "12"}), "part gain: '12' instead of 2 numbers"),
        (Verdict(1.0, True, turn_parts={"gain": []}), "part gain: 0 numbers for 2 turns"),
        (Verdict(1.0, True, turn_rewards=[1.0] * 7), "reward: 7 numbers for 2 turns"),
        (Verdict(1.0, True, turn_rewards=[1.0, None]), "reward of turn 1 is None instead"),
    ],
)
def test_anything_else_is_refused(verdict: Any, said: str) -> None:
    with pytest.raises(VerdictError, match=said):
        checked_verdict(TWO_TURNS, verdict)
