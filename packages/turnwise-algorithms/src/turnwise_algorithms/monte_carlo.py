"""Advantages from episodes that were played beside the group, only to judge its members by. Pure
float64 numpy."""

from collections.abc import Sequence

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_group, of_turns
from turnwise.algorithms.parts import Requirement, Trait, part


@part("estimator", "remax", of=of_group, needs=[Requirement.GREEDY], traits=[Trait.UNGROUPED])
def remax(group: Sequence[EstimatorInput]) -> Floats:
    """R_i - R_greedy: less the reward of the policy's greedy episode of the same task, float64[n].

    The gradient is unbiased, in a group of one too. Where the greedy episode has no grade: 0.
    Source: ReMax (arXiv 2310.10505), algorithm 1. Raises ValueError where none was played.
    """
    baselines = [episode.baseline for episode in group]
    if any(baseline is None for baseline in baselines):
        raise ValueError("remax needs the reward of a greedy episode, and none was played")
    totals = np.array([episode.total_reward for episode in group], np.float64)
    return np.nan_to_num(totals - np.array(baselines, np.float64))


@part(
    "estimator",
    "counterfactual",
    of=of_turns,
    needs=[Requirement.TURN_VALUES],
    traits=(Trait.UNGROUPED, Trait.NO_SHAPING, Trait.NO_PENALTY),
)
def counterfactual(group: Sequence[EstimatorInput]) -> list[Floats]:
    """A_k = V_{k+1} - V_k, by how much turn k changed what was to be expected; float64[K_i] each.

    V_k is the mean reward of episodes from before turn k, V_K the own reward. The replays of V_k do
    not depend on turn k, and those of V_{k+1} begin after it: the gradient is unbiased however few
    there are. A V_k without a graded replay is taken to be V_{k+1}: what turn k did counts with the
    turn before. Raises ValueError where nothing was played on.
    """
    advantages = []
    for episode in group:
        if episode.turn_values is None:
            raise ValueError("counterfactual needs turn values, and nothing was played on")
        values = episode.turn_values.copy()
        for turn in range(len(values) - 2, -1, -1):
            if np.isnan(values[turn]):
                values[turn] = values[turn + 1]
        advantages.append(np.diff(values)[: episode.turns])
    return advantages
