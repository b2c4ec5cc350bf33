"""The warning: before the reward falls, and not where an agent has simply learned."""

import numpy as np
import pytest

from turnwise.monitor.echo_trap import Thresholds, look

STEPS = 60


def history(spread: np.ndarray, entropy: np.ndarray, reward: np.ndarray) -> list[dict[str, float]]:
    return [
        {"step": step + 1, "reward/group_std": s, "policy/entropy": e, "reward/mean": r}
        for step, (s, e, r) in enumerate(zip(spread, entropy, reward, strict=True))
    ]


def first_warning(lines: list[dict[str, float]]) -> int | None:
    for end in range(1, len(lines) + 1):
        warning = look(lines[:end], 1.0, Thresholds())
        if warning is not None:
            assert warning.step == end
            return end
    return None


def fall(start: int, length: int, high: float, low: float) -> np.ndarray:
    return np.interp(np.arange(STEPS), [start, start + length], [high, low])


def test_it_comes_before_the_reward_falls() -> None:
    """Spread and entropy fall from step 15, the reward from step 45."""
    reward = np.interp(np.arange(STEPS), [0, 15, 45, 55], [0.2, 0.5, 0.5, 0.05])
    lines = history(fall(15, 12, 0.4, 0.05), fall(15, 12, 1.2, 0.2), reward)
    warned = first_warning(lines)
    assert warned is not None
    assert 20 <= warned <= 35


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_that_learns_is_no_alarm(seed: int) -> None:
    """Everything falls because everything succeeds."""
    noise = np.random.default_rng(seed).normal(0, 0.01, (3, STEPS))
    reward = np.interp(np.arange(STEPS), [0, 40], [0.3, 0.98]) + noise[0]
    spread = np.interp(np.arange(STEPS), [0, 40], [0.45, 0.05]) + np.abs(noise[1])
    entropy = np.interp(np.arange(STEPS), [0, 40], [1.0, 0.2]) + noise[2]
    assert first_warning(history(spread, entropy, reward)) is None


def test_a_policy_that_is_only_more_certain_is_no_alarm() -> None:
    flat, reward = np.full(STEPS, 0.4), np.full(STEPS, 0.5)
    assert first_warning(history(flat, fall(15, 10, 1.0, 0.1), reward)) is None


def test_the_entropy_is_told_and_need_not_fall() -> None:
    flat, reward = np.full(STEPS, 0.4), np.full(STEPS, 0.5)
    lines = history(fall(15, 10, 0.4, 0.05), flat, reward)
    warned = first_warning(lines)
    assert warned is not None
    assert "entropy is 0.400 (at most: 0.400)" in str(look(lines[:warned], 1.0, Thresholds()))


def test_steps_without_an_update_keep_the_last_entropy() -> None:
    lines = history(fall(15, 10, 0.4, 0.0), fall(15, 10, 1.0, 0.1), np.full(STEPS, 0.5))
    for line in lines[40:]:
        del line["policy/entropy"]
    warning = look(lines, 1.0, Thresholds())
    assert warning is not None
    assert warning.entropy == pytest.approx((1.0, 0.1))
    assert "from 0.400 to 0.000" in str(warning)


def test_few_steps_say_nothing() -> None:
    assert look([], 1.0, Thresholds()) is None
    lines = history(fall(0, 3, 0.4, 0.0), fall(0, 3, 1.0, 0.0), np.full(STEPS, 0.5))
    assert look(lines[:5], 1.0, Thresholds()) is None
    lines = history(fall(0, 1, 0.4, 0.0), fall(0, 3, 1.0, 0.0), np.full(STEPS, 0.5))
    assert look(lines[:6], 1.0, Thresholds()) is not None


def test_a_reward_that_rises_from_the_first_window_on_is_no_alarm() -> None:
    lines = history(fall(0, 1, 0.4, 0.0), np.full(STEPS, 1.0), np.linspace(0.2, 1.0, STEPS))
    assert look(lines[:7], 1.0, Thresholds()) is None
    lines = history(fall(0, 1, 0.4, 0.0), np.full(STEPS, 1.0), np.linspace(1.0, 0.2, STEPS) / 2)
    assert look(lines[:7], 1.0, Thresholds()) is not None
