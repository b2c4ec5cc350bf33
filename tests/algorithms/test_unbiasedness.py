"""Which estimators have the policy gradient as their mean: exactly, by enumeration.

The decision problem is small enough to list every pair of trajectories. In turn 0 the agent
goes on to one of two rooms or stops; in a room it chooses between two actions. Turns have rewards,
the outcome depends on the last choice, and the agent decides how many turns there are, so that a
baseline that looks at the agent's own stopping shows.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tests.algorithms.declared import defaults, functions, parts
from tests.marked import WING, marked
from turnwise.algorithms.estimators import EstimatorInput

ESTIMATORS = functions("estimator")
ESTIMATOR = parts("estimator")

LOGITS = np.array([0.3, -0.5, 0.2, 0.9, -0.4, 0.1, 0.6])
"""Three of the first turn (room 0, room 1, stop), then two in each room."""
CHOICES = {"start": slice(0, 3), "room 0": slice(3, 5), "room 1": slice(5, 7)}
FIRST_REWARD = [0.6, -0.3, 0.1]
SECOND_REWARD = {(0, 0): 0.4, (0, 1): -0.2, (1, 0): 0.9, (1, 1): 0.0}
OUTCOME = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 0.0, (1, 1): 1.0, (2,): 0.5}
TRAJECTORIES = [(0, 0), (0, 1), (1, 0), (1, 1), (2,)]

UNBIASED = ("reinforce", "rloo", "turn_rloo", "reinforce_baseline", "returns", "token_gae")
UNBIASED += ("remax", "counterfactual")
SCALED = ("dr_grpo",)
"""Right but for the factor 1 - 1/n, since the mean holds the trajectory's own reward."""
BIASED = ("grpo", "mt_grpo", "gigpo", "opo", "otb", "hca")


def probabilities(logits: np.ndarray, state: str) -> np.ndarray:
    weights = np.exp(logits[CHOICES[state]])
    return weights / weights.sum()


def steps(trajectory: tuple[int, ...]) -> list[tuple[str, int]]:
    states = ["start", f"room {trajectory[0]}"]
    return list(zip(states, trajectory, strict=False))


def probability(trajectory: tuple[int, ...]) -> float:
    return float(np.prod([probabilities(LOGITS, s)[a] for s, a in steps(trajectory)]))


def score(state: str, action: int) -> np.ndarray:
    """Gradient of the action's log-probability with respect to all logits."""
    gradient = np.zeros(len(LOGITS))
    gradient[CHOICES[state]] = -probabilities(LOGITS, state)
    gradient[CHOICES[state].start + action] += 1
    return gradient


def turn_rewards(trajectory: tuple[int, ...]) -> list[float]:
    rewards = [FIRST_REWARD[trajectory[0]]]
    return rewards if len(trajectory) == 1 else [*rewards, SECOND_REWARD[trajectory]]


def value(state: str) -> float:
    """The true one: of all that is still to come."""
    reachable = [t for t in TRAJECTORIES if (state, t[-1]) in steps(t) or state == "start"]
    at = 0 if state == "start" else 1
    weights = np.array([probability(t) for t in reachable])
    left = np.array([sum(turn_rewards(t)[at:]) + OUTCOME[t] for t in reachable])
    return float(weights @ left / weights.sum())


def episode(
    trajectory: tuple[int, ...], shaped: bool, critic: Callable[[str], float] = value
) -> EstimatorInput:
    """One token a turn, one of tool output between them."""
    turns = len(trajectory)
    mask = np.array([True, False, True][: 2 * turns - 1])
    states = [state for state, _ in steps(trajectory)]
    return EstimatorInput(
        shaped_reward=OUTCOME[trajectory],
        turn=np.array([0, 0, 1][: len(mask)], np.int32),
        mask=mask,
        turn_rewards=np.array(turn_rewards(trajectory)) if shaped else None,
        values=np.array([critic(states[0]), 9.0, critic(states[-1])][: len(mask)]),
        states=states,
        baseline=0.37,
        turn_values=turn_values(trajectory, shaped),
        logprobs=np.insert(log_probabilities(trajectory), 1, 0)[: len(mask)],
        hindsight_logprobs=np.insert(in_hindsight(trajectory, shaped), 1, 0)[: len(mask)],
        score_norms=np.insert(score_norms(trajectory), 1, 9.0)[: len(mask)],
    )


def score_norms(trajectory: tuple[int, ...]) -> np.ndarray:
    return np.array(
        [score(state, action) @ score(state, action) for state, action in steps(trajectory)]
    )


def log_probabilities(trajectory: tuple[int, ...]) -> np.ndarray:
    return np.log([probabilities(LOGITS, s)[a] for s, a in steps(trajectory)])


def in_hindsight(trajectory: tuple[int, ...], shaped: bool) -> np.ndarray:
    """The true log-probability of each action given what came before it and the total reward."""
    found = []
    for turn in range(len(trajectory)):
        alike = [
            t
            for t in TRAJECTORIES
            if t[:turn] == trajectory[:turn] and total(t, shaped) == total(trajectory, shaped)
        ]
        same = [t for t in alike if t[turn] == trajectory[turn]]
        found.append(np.log(sum(map(probability, same)) / sum(map(probability, alike))))
    return np.array(found)


def total(trajectory: tuple[int, ...], shaped: bool) -> float:
    return OUTCOME[trajectory] + shaped * sum(turn_rewards(trajectory))


def turn_values(trajectory: tuple[int, ...], shaped: bool) -> np.ndarray:
    """The true ones, which replays have as their mean."""
    values = []
    for turn in range(len(trajectory)):
        ahead = [t for t in TRAJECTORIES if t[:turn] == trajectory[:turn]]
        weights = np.array([probability(t) for t in ahead])
        values.append(weights @ [total(t, shaped) for t in ahead] / weights.sum())
    return np.array([*values, total(trajectory, shaped)])


def exact_gradient(shaped: bool) -> np.ndarray:
    return sum(
        probability(t) * total(t, shaped) * sum(score(state, action) for state, action in steps(t))
        for t in TRAJECTORIES
    )


def mean_gradient(
    name: str, shaped: bool, size: int, critic: Callable[[str], float] = value
) -> np.ndarray:
    """Of sum_t A_t grad log pi_t over the group's mean, over all groups that there can be."""
    numbers = defaults(ESTIMATOR[name])
    numbers |= {"discount": 1.0} if "discount" in numbers else {}
    episodes = {t: episode(t, shaped, critic) for t in TRAJECTORIES}
    scores = {t: [score(state, action) for state, action in steps(t)] for t in TRAJECTORIES}
    chances = {t: probability(t) for t in TRAJECTORIES}
    total = np.zeros(len(LOGITS))
    for group in product(TRAJECTORIES, repeat=size):
        credits = ESTIMATORS[name]([[episodes[t] for t in group]], **numbers)[0]
        weight = np.prod([chances[t] for t in group]) / size
        for trajectory, credit in zip(group, credits, strict=True):
            total += weight * (credit.advantages[::2] @ scores[trajectory])
    return total


@pytest.mark.long
@pytest.mark.parametrize("shaped", [False, True], ids=["outcome", "turn rewards"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", marked(UNBIASED))
def test_the_mean_is_the_policy_gradient(name: str, shaped: bool, size: int) -> None:
    np.testing.assert_allclose(
        mean_gradient(name, shaped, size), exact_gradient(shaped), atol=1e-12
    )


@pytest.mark.parametrize("name", SCALED)
def test_a_mean_with_ones_own_reward_shortens_the_gradient(name: str) -> None:
    for size in (2, 3):
        expected = exact_gradient(True) * (1 - 1 / size)
        np.testing.assert_allclose(mean_gradient(name, True, size), expected, atol=1e-12)


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.mark.long
@pytest.mark.parametrize("name", marked(BIASED))
def test_biased_estimators_point_elsewhere(name: str) -> None:
    """Not even their direction is that of the gradient; mt_grpo is measured as it was published."""
    assert cosine(mean_gradient(name, True, 3), exact_gradient(True)) < 0.9999


@WING
@pytest.mark.long
def test_the_bias_of_the_token_baseline_falls_with_the_size_of_the_group() -> None:
    """By direction and length, as docs/reference/algorithms.md has it."""
    exact = exact_gradient(True)
    means = [mean_gradient("otb", True, size) for size in (2, 3, 4)]
    cosines = [cosine(mean, exact) for mean in means]
    assert cosines == pytest.approx([0.973, 0.985, 0.991], abs=1e-3)
    lengths = [np.linalg.norm(mean) / np.linalg.norm(exact) for mean in means]
    assert lengths == pytest.approx([0.477, 0.640, 0.725], abs=1e-3)


def test_with_any_critic_full_returns_are_unbiased() -> None:
    """decay = 1: a wrong value is only a baseline, since it is of what stands before the token."""
    found = mean_gradient("token_gae", True, 1, critic=lambda state: 0.7)
    np.testing.assert_allclose(found, exact_gradient(True), atol=1e-12)
