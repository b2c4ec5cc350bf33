"""Filters of the groups, trajectories and tokens that are trained on, and penalties on long ones.

Groups are judged by the rewards of graded members, trajectories by a few plain facts: what is left
out leaves the denominators too, but a trajectory stays in its group's baseline. Penalties are taken
off before trajectories are compared; evaluations, metrics of rewards and filters never see them.

Tokens are ranked once for an optimizer batch, so that neither micro-batches nor chance have a part
in it: entropy falls where their log-probability and advantage vary together, mostly in few of them
(arXiv 2505.22617). Pure float64 numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.estimators import Floats
from turnwise.algorithms.outcome_advantages import differing
from turnwise.algorithms.parts import part
from turnwise.ranges import NonNegative, Range, Share


@part("group_filter", "none", "all groups")
def every(rewards: Sequence[Floats]) -> list[bool]:
    """All of them: groups that teach nothing stay in the denominators, as in GRPO."""
    return [True] * len(rewards)


@part("group_filter", "all_equal", "without groups whose rewards are all equal (arXiv 2503.14476)")
def unequal(rewards: Sequence[Floats]) -> list[bool]:
    """Keep groups of unequal rewards: dynamic sampling (DAPO, arXiv 2503.14476, 3.2)."""
    return [differing(group) for group in rewards]


@part("group_filter", "top_spread", "those of the largest spread of rewards (arXiv 2504.20073)")
def top_spread(rewards: Sequence[Floats], share: Share = 0.25) -> list[bool]:
    """The share of groups, one at least, with the largest standard deviation of rewards, which is
    not 0; of equal ones the earlier (StarPO-S of RAGEN, arXiv 2504.20073)."""
    spreads = np.array([_deviation(group) for group in rewards])
    count = max(1, round(share * len(rewards)))
    best = set(np.argsort(-spreads, kind="stable")[:count].tolist())
    return [index in best and differing(group) for index, group in enumerate(rewards)]


@part("group_filter", "top_variance", "those with most of the rewards' variance (arXiv 2604.06268)")
def top_variance(rewards: Sequence[Floats], mass: Share = 0.9) -> list[bool]:
    """The fewest groups with that share of all variance of rewards (RAGEN-2, arXiv 2604.06268)."""
    variances = np.array([_deviation(group) ** 2 for group in rewards])
    order = np.argsort(-variances, kind="stable")
    before = np.cumsum(variances[order]) - variances[order]
    chosen = set(order[before < mass * variances.sum()].tolist())
    return [index in chosen and differing(group) for index, group in enumerate(rewards)]


@dataclass(frozen=True)
class TurnFacts:
    acted: bool
    """There was a well-formed tool call or an answer."""
    failed: bool = False
    """Tools were called, and every call failed."""
    repeated: bool = False
    """Tools were called, and every call gave what the same call had given earlier."""


@dataclass(frozen=True)
class TrajectoryFacts:
    """The facts about a graded trajectory that a filter sees."""

    truncated: bool
    """A budget ended the episode: turns, tokens, context, tool calls or time."""
    turns: Sequence[TurnFacts]
    """Facts of all turns, those before a branch included."""


@part("trajectory_filter", "none", "all graded trajectories")
def every_trajectory(facts: TrajectoryFacts) -> bool:
    """All of them."""
    return True


@part("trajectory_filter", "overlong", "those that no budget ended (arXiv 2503.14476)")
def finished(facts: TrajectoryFacts) -> bool:
    """Keep trajectories that no budget ended: overlong filtering (DAPO, arXiv 2503.14476, 3.4)."""
    return not facts.truncated


@part(
    "trajectory_filter",
    "void_turns",
    "those whose every turn has a tool call or an answer (arXiv 2509.02479)",
)
def without_void_turns(facts: TrajectoryFacts) -> bool:
    """Keep trajectories that call a tool or answer in every turn (SimpleTIR, arXiv 2509.02479)."""
    return all(turn.acted for turn in facts.turns)


@part(
    "trajectory_filter",
    "void_results",
    "those whose every turn has an answer or calls that brought something new",
)
def without_void_results(facts: TrajectoryFacts) -> bool:
    """Keep trajectories without void turns whose tool turns also brought something: not all calls
    failed, and not all gave what they had given before; a wider reading than SimpleTIR's."""
    return all(turn.acted and not turn.failed and not turn.repeated for turn in facts.turns)


def _deviation(rewards: Floats) -> float:
    return float(rewards.std()) if differing(rewards) else 0.0


@part("reward_shaping", "none", "the task's reward")
def unshaped(lengths: NDArray[np.int64], budget: int) -> Floats:
    """0: the rewards are the task's."""
    return np.zeros(len(lengths))


@part(
    "reward_shaping",
    "overlong",
    "less a penalty in the last share of the token budget (arXiv 2503.14476)",
)
def overlong(
    lengths: NDArray[np.int64],
    budget: int,
    overlong_band: Annotated[float, Range(1e-6, 1)] = 0.2,
    overlong_penalty: NonNegative = 1.0,
) -> Floats:
    """0 up to budget - band, then growing with each token to `overlong_penalty` at the budget; the
    band is that share of the budget. Source: DAPO (arXiv 2503.14476), equation 13, with a band of a
    fifth of 20,480 tokens, and 1."""
    band = overlong_band * budget
    share: Floats = np.clip((lengths - (budget - band)) / band, 0.0, 1.0)
    return overlong_penalty * share


class Treatment(NamedTuple):
    """The treatment of n trained tokens, float64[n] each."""

    loss_scale: Floats
    """Factor on the objective: 1, or 0 for a token taken out, which stays in the denominators."""
    kl_penalty: Floats
    """Weight of the divergence from the policy before the update, added to the loss; 0 for most."""


def covariances(advantages: Floats, logprobs: Floats) -> Floats:
    """(A - mean A) (log pi - mean log pi): what each token adds to the covariance of the two."""
    product: Floats = (advantages - advantages.mean()) * (logprobs - logprobs.mean())
    return product


@part("token_filter", "none", "all tokens alike")
def none(advantages: Floats, logprobs: Floats) -> Treatment:
    """All tokens alike."""
    return Treatment(np.ones(len(advantages)), np.zeros(len(advantages)))


@part(
    "token_filter",
    "clip_cov",
    "without a few tokens of high covariance of log-prob and advantage (arXiv 2505.22617)",
)
def clip_cov(
    advantages: Floats,
    logprobs: Floats,
    share: Share = 2e-4,
    covariance_low: NonNegative = 1.0,
    covariance_high: NonNegative = 5.0,
) -> Treatment:
    """Takes out the share of the tokens, at least one, with the largest covariance in bounds."""
    treatment = none(advantages, logprobs)
    if len(advantages):
        covariance = covariances(advantages, logprobs)
        inside = (covariance > covariance_low) & (covariance < covariance_high)
        chosen = _largest(np.where(inside, covariance, -np.inf), share)
        # Where fewer than the share are inside, some of the chosen are not.
        treatment.loss_scale[chosen[inside[chosen]]] = 0.0
    return treatment


@part(
    "token_filter",
    "kl_cov",
    "those of the highest covariance are held back by a KL term (arXiv 2505.22617)",
)
def kl_cov(
    advantages: Floats, logprobs: Floats, share: Share = 2e-3, penalty: NonNegative = 1.0
) -> Treatment:
    """Penalises that share of the tokens, at least one, with the largest covariance."""
    treatment = none(advantages, logprobs)
    if len(advantages):
        treatment.kl_penalty[_largest(covariances(advantages, logprobs), share)] = penalty
    return treatment


def _largest(numbers: Floats, share: float) -> np.ndarray:
    """Their places; of equal numbers the earlier one."""
    return np.argsort(-numbers, kind="stable")[: max(1, int(share * len(numbers)))]
