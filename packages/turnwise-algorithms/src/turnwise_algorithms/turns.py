"""Credit for turns by rewards of their own, or by the states in which they begin.

Each function gives a list with float64[K_i] for each episode. Pure float64 numpy.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_turns, totals
from turnwise.algorithms.outcome_advantages import dr_grpo, grpo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.algorithms.turns import TurnNumbers, turn_returns
from turnwise.conflicts import Need
from turnwise.ranges import NonNegative, Range, Share


@part(
    "estimator",
    "mt_grpo",
    "turn rewards z-scored per turn index, outcomes in the group; biased if turn counts differ "
    "(arXiv 2505.11821v1)",
    of=of_turns,
    needs=[Requirement.TURN_REWARDS],
    traits=[Trait.NO_PENALTY],
)
def mt_grpo(group: Sequence[EstimatorInput], discount: Share = 1.0) -> TurnNumbers:
    """A_k = sum_{l=k}^{K-2} discount^(l-k) I_l + discount^(K-1-k) O: rewards of turns before the
    last z-scored for each turn index over the group, 0 where an episode has no such turn (I),
    outcomes over the group (O). A last turn's reward is part of its outcome; an episode of one turn
    has the z-score of all its rewards in one sum.

    Source: arXiv 2505.11821, first version, and its program, which have two turns: A_0 = I + O and
    A_1 = O. It is biased where the policy decides when to stop, since which turns are compared
    depends on the actions: `turn_rloo` is the estimator without that fault.
    """
    rewards = [_turn_rewards(episode) for episode in group]
    own = [episode.shaped_reward for episode in group]
    outcome = grpo(np.array([o + row[-1:].sum() for o, row in zip(own, rewards, strict=True)]))
    together = grpo(np.array([o + row.sum() for o, row in zip(own, rewards, strict=True)]))
    before = [row[:-1] for row in rewards]
    scores = [
        grpo(np.array([row[turn] if turn < len(row) else 0.0 for row in before], np.float64))
        for turn in range(max(map(len, before), default=0))
    ]
    advantages = []
    for index, row in enumerate(rewards):
        numbers = np.zeros(len(row))
        # With one turn there is no turn before the last, whose reward would be compared by itself.
        numbers[-1:] = (outcome if len(row) > 1 else together)[index]
        for turn in range(len(row) - 2, -1, -1):
            numbers[turn] = scores[turn][index] + discount * numbers[turn + 1]
        advantages.append(numbers)
    return advantages


@part(
    "estimator",
    "gigpo",
    "the group's z-score plus that among turns from the same state (arXiv 2505.10978)",
    of=of_turns,
    needs=[Requirement.STATES],
    conditions=[Need.OWN_LOOP],
    traits=[Trait.NO_PENALTY],
)
def gigpo(
    group: Sequence[EstimatorInput],
    discount: Share = 0.95,
    step_weight: NonNegative = 1.0,
    divide: Annotated[int, Range(0, 1)] = 1,
) -> TurnNumbers:
    """A_k = A^E + step_weight A^S_k: the episode's advantage in its group, plus that of the turn's
    discounted return among the group's turns that began in the same state; 0 for a state met once.

    `divide` divides both by their standard deviation (n-1), as the paper's default. Source: GiGPO,
    arXiv 2505.10978, equations 3 to 8. Raises ValueError without names of states.
    """
    clusters: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    returns = [turn_returns(episode, discount) for episode in group]
    for index, episode in enumerate(group):
        if episode.states is None or len(episode.states) < episode.turns:
            raise ValueError("gigpo compares turns that begin in the same state: none are named")
        for turn in range(episode.turns):
            clusters[episode.states[turn]].append((index, turn))
    compared = grpo if divide else dr_grpo
    whole = compared(totals(group))
    advantages = [np.full(episode.turns, whole[index]) for index, episode in enumerate(group)]
    for members in clusters.values():
        numbers = np.array([returns[index][turn] for index, turn in members])
        for (index, turn), number in zip(members, compared(numbers), strict=True):
            advantages[index][turn] += step_weight * number
    return advantages


def _turn_rewards(episode: EstimatorInput) -> Floats:
    """The rewards of the turns without the outcome; 0 throughout where no turn has a reward."""
    rewards = episode.rewards_by_turn()
    rewards[-1:] -= episode.shaped_reward
    return rewards
