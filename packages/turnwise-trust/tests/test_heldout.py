"""The held-out verifier beside the training one."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from turnwise_trust.heldout import Judged, falls, judged, refused

Rate = Callable[[int], float]
STEPS, GROUPS, SIZE = 20, 8, 8


def history(
    seed: int,
    paid: Rate,
    accepted: Rate,
    right: Rate = lambda step: 0.0,
    count: int = STEPS,
) -> list[Judged]:
    """Simulated steps: the rate of paid episodes, of those among them that the held-out verifier
    accepts, and among the others. Tasks differ in how hard they are."""
    random = np.random.default_rng(seed)
    steps = []
    for step in range(count):
        rates = np.clip(paid(step) + random.normal(0, 0.25, GROUPS), 0, 1).repeat(SIZE)
        trained = random.random(GROUPS * SIZE) < rates
        shares = np.where(trained, accepted(step), right(step))
        heldout = random.random(GROUPS * SIZE) < shares
        groups = np.arange(GROUPS).repeat(SIZE)
        steps.append(Judged(step + 1, groups, trained.astype(float), heldout.astype(float)))
    return steps


def first_alarm(steps: list[Judged], alarm: Callable[..., Iterator[object]]) -> int:
    """The first step with an alarm; 0 for none."""
    ends = range(1, len(steps) + 1)
    return next((end for end in ends if list(alarm(steps[:end], "checked"))), 0)


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_stricter_verifier_alone_is_no_alarm(share: float) -> None:
    for seed in range(4):
        healthy = history(seed, lambda step: 0.3 + 0.03 * step, lambda step: share)
        assert first_alarm(healthy, refused) == first_alarm(healthy, falls) == 0


def test_one_band_of_many_that_parts_by_chance_is_no_alarm() -> None:
    assert not list(refused(history(1, lambda step: 0.6, lambda step: 0.9, count=56), "checked"))


def test_verifiers_that_part_are_seen_before_half_of_it_is_lost() -> None:
    for seed in range(4):
        cheated = history(seed, lambda step: 0.4 + 0.03 * step, lambda step: 0.95 - 0.045 * step)
        assert 5 < first_alarm(cheated, refused) <= 12


def test_what_is_refused_from_the_beginning_is_seen_in_the_first_steps() -> None:
    for seed in range(4):
        steps = history(seed, lambda step: 0.6, lambda step: 0.1)
        assert 1 <= first_alarm(steps, refused) <= 3


def test_success_that_falls_while_the_reward_rises() -> None:
    def right(step: int) -> float:
        return max(0.0, 0.8 - 0.08 * step)

    for seed in range(5):
        assert first_alarm(history(seed, lambda step: 0.5 + 0.02 * step, right, right), falls)


def test_episodes_without_a_grade_are_left_out() -> None:
    rows = [
        {"group": "a", "reward": None, "success": None, "parts": {}},
        {"group": "a", "reward": 1.0, "success": True, "parts": {"checked": 0.0}},
        {"group": "a", "reward": 1.0, "success": True, "parts": {"other": 1.0}},
    ]
    step = judged(3, rows, "checked")
    assert len(step.groups) == 1
    assert step.heldout.tolist() == [0.0]
    assert judged(3, rows, "").heldout.tolist() == [1.0, 1.0]
