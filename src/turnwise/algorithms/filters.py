"""Filters of the groups and trajectories that are trained on; the others leave the denominators.

Groups are judged by the rewards of graded members, trajectories by a few plain facts; one that is
left out of the loss stays in its group's baseline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.algorithms.estimator_input import Floats
from turnwise.algorithms.outcome_advantages import differing
from turnwise.algorithms.parts import part
from turnwise.ranges import Share

GroupFilter = Callable[..., list[bool]]
"""(rewards of each group, **numbers) -> whether each is kept."""


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


@part(
    "group_filter",
    "top_variance",
    "those with most of the rewards' variance (arXiv 2604.06268)",
)
def top_variance(rewards: Sequence[Floats], mass: Share = 0.9) -> list[bool]:
    """The fewest groups that together have that share of all variance of rewards: linear top-p of
    RAGEN-2 (arXiv 2604.06268)."""
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


TrajectoryFilter = Callable[..., bool]
"""(facts, **numbers) -> whether the trajectory is trained on."""


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
    """Keep trajectories with a tool call or an answer in every turn (SimpleTIR, arXiv
    2509.02479)."""
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
