"""The warning: before the reward falls, and not where an agent has simply learned."""

from typing import Any

import numpy as np
import pytest

from turnwise.monitor.echo_trap import Thresholds, detect, detections

STEPS = 60


def history(spread: np.ndarray, entropy: np.ndarray, reward: np.ndarray) -> list[dict[str, float]]:
    return [
        {"step": step + 1, "reward/group_std": s, "policy/entropy": e, "reward/mean": r}
        for step, (s, e, r) in enumerate(zip(spread, entropy, reward, strict=True))
    ]


def first_warning(lines: list[dict[str, float]]) -> int | None:
    for end in range(1, len(lines) + 1):
        warning = detect(lines[:end], 1.0, Thresholds())
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
    assert 20 <= warned <= 35
    ends = range(Thresholds().fewest_steps, STEPS + 1)
    by_itself = [detect(lines[:end], 1.0, Thresholds()) for end in ends]
    assert list(detections(lines, 1.0, Thresholds())) == by_itself


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_that_learns_is_no_alarm(seed: int) -> None:
    """Everything falls because everything succeeds."""
    noise = np.random.default_rng(seed).normal(0, 0.01, (3, STEPS))
    reward = np.interp(np.arange(STEPS), [0, 40], [0.3, 0.98]) + noise[0]
    spread = np.interp(np.arange(STEPS), [0, 40], [0.45, 0.05]) + np.abs(noise[1])
    entropy = np.interp(np.arange(STEPS), [0, 40], [1.0, 0.2]) + noise[2]
    assert first_warning(history(spread, entropy, reward)) is None


def test_where_the_spread_has_not_fallen_or_the_reward_rises_there_is_no_alarm() -> None:
    """A policy that is only more certain; groups that are all equal, of which nothing is updated;
    a reward that rises from the first window on."""
    flat, reward = np.full(STEPS, 0.4), np.full(STEPS, 0.5)
    assert first_warning(history(flat, fall(15, 10, 1.0, 0.1), reward)) is None
    lines = history(np.zeros(STEPS), np.zeros(STEPS), np.zeros(STEPS))
    for line in lines:
        del line["policy/entropy"]
    assert first_warning(lines) is None
    for rewards, warned in (((0.2, 1.0), False), ((0.5, 0.1), True)):
        spread = fall(4, 1, 0.4, 0.0)
        lines = history(spread, np.full(STEPS, 1.0), np.linspace(*rewards, STEPS))
        assert (detect(lines[:9], 1.0, Thresholds()) is not None) is warned


def test_the_entropy_is_told_and_need_not_fall() -> None:
    flat, reward = np.full(STEPS, 0.4), np.full(STEPS, 0.5)
    lines = history(fall(15, 10, 0.4, 0.05), flat, reward)
    warned = first_warning(lines)
    assert warned is not None
    assert "entropy is 0.400 (at most: 0.400)" in str(detect(lines[:warned], 1.0, Thresholds()))
    for line in lines:
        del line["policy/entropy"]
    warning = detect(lines, 1.0, Thresholds())
    assert warning is not None
    assert "entropy" not in str(warning), "it was not measured"


def test_steps_without_an_update_keep_the_last_entropy() -> None:
    lines = history(fall(15, 10, 0.4, 0.0), fall(15, 10, 1.0, 0.1), np.full(STEPS, 0.5))
    for line in lines[40:]:
        del line["policy/entropy"]
    warning = detect(lines, 1.0, Thresholds())
    assert warning.entropy == pytest.approx((1.0, 0.1))
    assert "from 0.400 to 0.000" in str(warning)


def test_steps_in_which_nothing_was_measured_stand_for_nothing() -> None:
    """Every second step has no grade, or no group with two of them."""
    lines = history(fall(15, 10, 0.4, 0.05), np.full(STEPS, 1.0), np.full(STEPS, 0.5))
    for line in lines[::2]:
        del line["reward/group_std"]
    for line in lines[1:10:2]:
        del line["reward/mean"]
    assert detect(lines, 1.0, Thresholds()) is not None
    assert detect(lines[:16], 1.0, Thresholds()) is None


def played(generator: np.random.Generator, chances: np.ndarray, tasks: int, size: int) -> list[Any]:
    """A run of groups of `size` episodes of `tasks` tasks, some harder than others, whose mean
    chance of success is given for each step."""
    lines = []
    for step, chance in enumerate(chances):
        each = generator.beta(2 * chance, 2 * (1 - chance), tasks)
        rewards = generator.random((tasks, size)) < each[:, None]
        spread, reward = float(rewards.std(axis=1).mean()), float(rewards.mean())
        line = {"step": step + 1, "reward/group_std": spread, "reward/mean": reward}
        lines.append(line | {"policy/entropy": 1.0})
    return lines


HEALTHY = [(0.02, 0.02), (0.1, 0.1), (0.3, 0.3), (0.6, 0.6), (0.05, 0.3), (0.2, 0.7)]
"""Mean chances of success at the beginning and at the end."""


@pytest.mark.long
@pytest.mark.parametrize("tasks", [2, 4, 8])
def test_small_healthy_runs_are_hardly_ever_an_alarm(tasks: int) -> None:
    """Of 20 steps with groups of four, whose spreads come and go by chance: at most 5%."""
    generator = np.random.default_rng(1)
    runs = [
        played(generator, np.linspace(first, last, 20), tasks, 4)
        for first, last in HEALTHY
        for _ in range(20)
    ]
    assert sum(first_warning(run) is not None for run in runs) <= 0.05 * len(runs)


def test_runs_that_collapse_are_told_of() -> None:
    """As many groups as those of the trap made on purpose: eight of eight."""
    generator = np.random.default_rng(1)
    chances = np.interp(np.arange(30), [0, 8, 16], [0.35, 0.35, 0.01])
    warned = [first_warning(played(generator, chances, 8, 8)) for _ in range(20)]
    assert all(step is not None and step <= 20 for step in warned)


def test_few_steps_say_nothing() -> None:
    assert detect([], 1.0, Thresholds()) is None
    lines = history(fall(0, 3, 0.4, 0.0), fall(0, 3, 1.0, 0.0), np.full(STEPS, 0.5))
    assert detect(lines[:5], 1.0, Thresholds()) is None
    assert detect(lines[:8], 1.0, Thresholds()) is None  # one window of spread is not a height
    lines = history(fall(4, 1, 0.4, 0.0), fall(0, 3, 1.0, 0.0), np.full(STEPS, 0.5))
    assert first_warning(lines) == 9
