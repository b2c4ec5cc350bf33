"""The input and the output of an estimator, and ways to make one from a function of a group or
episode.

Estimators get a batch: a list of groups, each a list of inputs. An ungraded trajectory has no
input, so it is in no baseline and in no denominator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EstimatorInput:
    """One graded trajectory of n tokens and K turns.

    Example (two turns with an observation between them):
        EstimatorInput(shaped_reward=1.0, turn=np.array([0, 0, 0, 0, 1]),
                mask=np.array([False, True, True, False, True]),
                turn_rewards=np.array([0.2, 0.0]))
    """

    shaped_reward: float
    """The verifier's reward less the algorithm's penalty; counts at the last sampled token."""
    turn: NDArray[np.int32]
    """int32[n], from 0; an observation belongs to the turn whose action caused it."""
    mask: NDArray[np.bool_]
    """bool[n], True where the policy sampled the token."""
    turn_rewards: Floats | None = None
    """float64[K], each at the last sampled token of its turn, without the outcome. None where there
    are none per turn, which is not the same as zeros."""
    token_rewards: Floats | None = None
    """float64[n], such as a KL penalty; read at sampled tokens, and each counts where it stands."""
    values: Floats | None = None
    """float64[n], the critic's value of what stands before each token; read at sampled tokens."""
    states: Sequence[str] | None = None
    """K names of the state before each turn: equal names are the same state."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The verifier's single rewards by name."""
    baseline: float | None = None
    """Reward of the task's greedy episode; NaN where it has no grade, None where there is none."""
    parent: int | None = None
    """Index in the group of the episode that it branches from, its own for a tree's first."""
    first_turn: int = 0
    """The turn at which it branches off; what was sampled before is the parent's, and masked."""
    logprobs: Floats | None = None
    """float64[n], of the policy that sampled; read at sampled tokens."""
    teacher_logprobs: Floats | None = None
    """float64[n], of the same tokens under a teacher; NaN where it scored none."""
    hindsight_logprobs: Floats | None = None
    """float64[n], of the same tokens given the outcome."""
    score_norms: Floats | None = None
    """float64[n], squared norm of the gradient of log pi by the logits, 1 - 2 pi + sum_v pi_v^2, at
    sampled tokens; NaN counts as 0."""
    information_gains: Floats | None = None
    """float64[K-1]: by how much each turn but the last raised the right answer's probability."""
    turn_values: Floats | None = None
    """float64[K+1] or more: mean rewards of episodes played on from before each turn, NaN where
    none has a grade; last, the own reward."""

    def __post_init__(self) -> None:
        if len(self.turn) != len(self.mask):
            raise ValueError(f"{len(self.turn)} turn ids for {len(self.mask)} tokens")
        _finite("shaped_reward", np.array([self.shaped_reward]))
        if self.turn_rewards is not None:
            _finite("turn_rewards", self.turn_rewards)
        if self.token_rewards is not None:
            _finite("token_rewards", self.token_rewards[self.mask])

    @property
    def total_reward(self) -> float:
        total = self.shaped_reward + self.added_reward
        if self.turn_rewards is not None:
            total += float(self.turn_rewards.sum())
        return total

    @property
    def added_reward(self) -> float:
        """The rewards of single tokens, which the trainer adds to what the environment gave."""
        if self.token_rewards is None:
            return 0.0
        return float(self.token_rewards[self.mask].sum())

    @property
    def turns(self) -> int:
        """K, counted to the last turn in which the policy sampled something."""
        return int(self.turn[self.mask].max()) + 1 if self.mask.any() else 0

    @property
    def turn_ends(self) -> NDArray[np.int64]:
        """int64[K], the last sampled token of each turn; -1 for a turn without one."""
        ends = np.full(self.turns, -1, np.int64)
        sampled = np.flatnonzero(self.mask)
        ends[self.turn[sampled]] = sampled  # the last assignment to an index wins
        return ends

    @property
    def turn_starts(self) -> NDArray[np.int64]:
        """int64[K], the first sampled token of each turn; -1 for a turn without one."""
        starts = np.full(self.turns, -1, np.int64)
        sampled = np.flatnonzero(self.mask)[::-1]
        starts[self.turn[sampled]] = sampled  # reversed, so that the first one wins
        return starts

    def on_tokens(self, per_turn: Floats) -> Floats:
        """float64[n]: a turn's number on each of its sampled tokens, 0 on all others."""
        spread = np.zeros(len(self.mask))
        spread[self.mask] = per_turn[self.turn[self.mask]]
        return spread

    def rewards_by_turn(self) -> Floats:
        """float64[K]: the rewards of each turn, the outcome added to the last."""
        rewards = np.zeros(self.turns)
        if self.turns and self.turn_rewards is not None:
            _no_more_than(self.turn_rewards, self.turns)
            rewards[: len(self.turn_rewards)] = self.turn_rewards[: self.turns]
        if self.token_rewards is not None:
            np.add.at(rewards, self.turn[self.mask], self.token_rewards[self.mask])
        rewards[-1:] += self.shaped_reward
        return rewards

    def rewards_by_token(self) -> Floats:
        """float64[n]: the same rewards, each where it counts."""
        rewards = np.zeros(len(self.mask))
        if self.token_rewards is not None:
            rewards[self.mask] = self.token_rewards[self.mask]
        ends = self.turn_ends
        if self.turn_rewards is not None:
            _no_more_than(self.turn_rewards, len(ends))
            for end, reward in zip(ends, self.turn_rewards, strict=False):  # those beyond are 0
                if end < 0 and reward:
                    raise ValueError("a turn in which the policy sampled nothing has a reward")
                rewards[end] += reward
        if len(ends):
            rewards[ends[-1]] += self.shaped_reward
        return rewards


Groups = Sequence[Sequence[EstimatorInput]]


def _no_more_than(turn_rewards: Floats, turns: int) -> None:
    if turn_rewards[turns:].any():
        raise ValueError(f"{len(turn_rewards)} turn rewards for {turns} turns of the policy")


def _finite(name: str, numbers: Floats) -> None:
    if not np.isfinite(numbers).all():
        position = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} {position} is {numbers[position]}")


class Credit(NamedTuple):
    """float64[n] each."""

    advantages: Floats
    """0 where nothing was sampled."""
    targets: Floats | None = None
    """Targets of the critic: advantage + value, before whitening; NaN where it is not trained."""


Estimator = Callable[..., list[list[Credit]]]
"""(groups, **numbers) -> for each group, for each episode. Raises ValueError where data lack."""


def _each(credit: Callable[[Sequence[EstimatorInput], dict[str, Any]], list[Credit]]) -> Estimator:
    return lambda groups, **numbers: [credit(group, numbers) for group in groups]


def of_rewards(function: Callable[..., Floats]) -> Estimator:
    """One number per trajectory, from the rewards of its group, on each of its tokens."""
    return _each(lambda group, numbers: spread(group, function(totals(group), **numbers)))


def of_group(function: Callable[..., Floats]) -> Estimator:
    """One number per trajectory, from the episodes of its group, on each of its tokens."""
    return _each(lambda group, numbers: spread(group, function(group, **numbers)))


def of_turns(function: Callable[..., list[Floats]]) -> Estimator:
    """One number per turn, from the episodes of its group, on each of the turn's tokens."""

    def credit(group: Sequence[EstimatorInput], numbers: dict[str, Any]) -> list[Credit]:
        rows = function(group, **numbers)
        return [Credit(one.on_tokens(row)) for one, row in zip(group, rows, strict=True)]

    return _each(credit)


def of_tokens(function: Callable[..., list[Floats]]) -> Estimator:
    """One number per token, from the episodes of its group."""
    return _each(lambda group, numbers: [Credit(row) for row in function(group, **numbers)])


def of_episode(function: Callable[..., Floats]) -> Estimator:
    """One number per token, from one episode alone."""
    return _each(lambda group, numbers: [Credit(function(one, **numbers)) for one in group])


def of_values(function: Callable[..., Credit]) -> Estimator:
    """One number per token and the critic's targets, from an episode's rewards and values."""
    return _each(lambda group, numbers: [function(one, **numbers) for one in group])


def spread(group: Sequence[EstimatorInput], numbers: Floats) -> list[Credit]:
    """Each episode's number on its sampled tokens."""
    return [
        Credit(np.where(episode.mask, number, 0.0))
        for episode, number in zip(group, numbers, strict=True)
    ]


def totals(group: Sequence[EstimatorInput]) -> Floats:
    """float64[n]: outcome and all other rewards of each episode."""
    return np.array([episode.total_reward for episode in group], np.float64)


def discounted(numbers: Floats, discount: float) -> Floats:
    """x_k + discount x_{k+1} + discount^2 x_{k+2} + ... for each k, float64[K]."""
    sums = numbers.copy()
    for place in range(len(sums) - 2, -1, -1):
        sums[place] += discount * sums[place + 1]
    return sums


def mean_reward(rewards: Sequence[float]) -> float:
    """The mean, exact where all are equal; NaN of none."""
    if not len(rewards):
        return float("nan")
    return float(rewards[0] if min(rewards) == max(rewards) else np.mean(rewards))
