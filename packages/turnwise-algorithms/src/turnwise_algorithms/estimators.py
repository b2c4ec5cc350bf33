"""Advantages from what is measured or played beside a group: a greedy episode, replays of turns, a
teacher, rewards and score norms of tokens, gains of turns. Pure float64 numpy.

An episode without what an estimator needs is a ValueError, which names it.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from turnwise.algorithms.estimators import (
    EstimatorInput,
    Floats,
    discounted,
    of_episode,
    of_group,
    of_tokens,
    of_turns,
)
from turnwise.algorithms.outcome_advantages import differing, grpo, rloo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.conflicts import Need
from turnwise.ranges import Range, Share


def needed(measured: Floats | None, what: str) -> Floats:
    """Raises ValueError where it was not measured."""
    if measured is None:
        raise ValueError(f"this estimator needs {what}, and there are none")
    return measured


@part("estimator", "remax", of=of_group, needs=[Requirement.GREEDY], traits=[Trait.UNGROUPED])
def remax(group: Sequence[EstimatorInput]) -> Floats:
    """R_i - R_greedy: less the reward of the policy's greedy episode of the same task, float64[n].

    The gradient is unbiased, in a group of one too. Where the greedy episode has no grade: 0.
    Source: ReMax (arXiv 2310.10505), algorithm 1.
    """
    baselines = [episode.baseline for episode in group]
    if any(baseline is None for baseline in baselines):
        raise ValueError("remax needs the reward of a greedy episode, and none was played")
    totals = np.array([episode.total_reward for episode in group], np.float64)
    # NaN is the baseline of a greedy episode without a grade.
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
    turn before.
    """
    advantages = []
    for episode in group:
        values = needed(episode.turn_values, "values of turns that were played on from").copy()
        # From the end on, so that the value after an unknown one is known.
        for turn in range(len(values) - 2, -1, -1):
            if np.isnan(values[turn]):
                values[turn] = values[turn + 1]
        advantages.append(np.diff(values)[: episode.turns])
    return advantages


@part(
    "estimator",
    "distillation",
    of=of_episode,
    needs=[Requirement.TEACHER],
    traits=(Trait.UNGROUPED, Trait.NO_SHAPING, Trait.NO_PENALTY),
)
def distillation(episode: EstimatorInput) -> Floats:
    """A_t = log teacher - log policy of each sampled token, 0 elsewhere: float64[n].

    In the mean that is less the reverse divergence, token by token, in the states that the policy
    gets into; rewards are not looked at. Source: on-policy distillation (arXiv 2306.13649) without
    discount. A token that the teacher did not score has 0.
    """
    teacher = needed(episode.teacher_logprobs, "log-probabilities of a teacher")
    policy = needed(episode.logprobs, "log-probabilities of the policy")
    return np.where(episode.mask & ~np.isnan(teacher), teacher - policy, 0.0)


@part("estimator", "otb", of=of_tokens, needs=[Requirement.SCORE_NORMS])
def otb(group: Sequence[EstimatorInput]) -> list[Floats]:
    """A_t = G_t - B_t, B_t = sum_i G_{i,t} W_{i,t} / sum_i W_{i,t}: float64[n] for each episode, 0
    where nothing was sampled. G_t is the return from token t on, without discount; W_t the sum of
    the score norms 1 - 2 pi + sum_v pi_v^2 up to and with t.

    That is the baseline of least variance for gradients that grow as the logits' do. t counts what
    an episode sampled; one that has ended by t is not in B_t. Where one episode is left, or the
    returns are equal: exactly 0 (the published program leaves the return itself in the tail of the
    longest). Each episode's own return is in its baseline and W depends on what was sampled, so the
    mean is not the policy gradient. Source: the Optimal Token Baseline (arXiv 2602.07078), over
    turns as in its tool-integrated form.
    """
    length = max((int(episode.mask.sum()) for episode in group), default=0)
    returns, weights = np.full((2, len(group), length), np.nan)
    for row, episode in enumerate(group):
        count = int(episode.mask.sum())
        norms = needed(episode.score_norms, "score norms")
        # What comes from each token on: sums from the back.
        returns[row, :count] = episode.rewards_by_token()[episode.mask][::-1].cumsum()[::-1]
        weights[row, :count] = np.nan_to_num(norms[episode.mask]).cumsum()
    baselines = np.array([_baseline(*column) for column in zip(returns.T, weights.T, strict=True)])
    advantages = []
    for row, episode in enumerate(group):
        own = np.zeros(len(episode.mask))
        count = int(episode.mask.sum())
        own[episode.mask] = np.nan_to_num(returns[row, :count] - baselines[:count])  # 0 without one
        advantages.append(own)
    return advantages


def _baseline(returns: Floats, weights: Floats) -> float:
    """NaN without anything to compare."""
    there = ~np.isnan(returns)
    returns, weights = returns[there], weights[there]
    if not differing(returns) or not weights.any():
        return float("nan")
    return float(returns @ weights / weights.sum())


@part(
    "estimator",
    "process_rloo",
    of=of_tokens,
    needs=[Requirement.PROCESS_REWARDS],
    traits=[Trait.NO_PENALTY],
)
def process_rloo(group: Sequence[EstimatorInput], discount: Share = 1.0) -> list[Floats]:
    """A_t = sum_{s>=t} discount^(s-t) (r_s - b) + O - mean of the others' O, over sampled tokens; b
    is the mean over the others of the mean of their tokens' rewards: float64[n] for each episode.

    O is the outcome with any rewards per turn. A group of one has 0. Source: PRIME (arXiv
    2502.01456), before its whitening.
    """
    rewards = [needed(one.token_rewards, "rewards per token")[one.mask] for one in group]
    means = np.array([row.mean() for row in rewards if len(row)])
    outcomes = rloo(np.array([_outcome(episode) for episode in group], np.float64))
    advantages = []
    for episode, row, outcome in zip(group, rewards, outcomes, strict=True):
        spread = np.zeros(len(episode.mask))
        if len(row):
            # A mean of means: a long episode has no larger say in the baseline than a short one.
            others = (means.sum() - row.mean()) / max(len(means) - 1, 1)
            returns = row - others if len(means) > 1 else np.zeros(len(row))
            spread[episode.mask] = discounted(returns, discount) + outcome
        advantages.append(spread)
    return advantages


def _outcome(episode: EstimatorInput) -> float:
    return episode.shaped_reward + (
        0.0 if episode.turn_rewards is None else episode.turn_rewards.sum()
    )


@part(
    "estimator",
    "information_gain",
    of=of_turns,
    needs=[Requirement.INFORMATION_GAIN],
    conditions=[Need.WORDS],
    traits=[Trait.NO_PENALTY],
)
def information_gain(
    group: Sequence[EstimatorInput],
    discount: Share = 1.0,
    separate: Annotated[int, Range(0, 1)] = 0,
) -> list[Floats]:
    """A_k = sum_{l>=k} discount^(l-k) z(r_l), r_l the gain p(answer | h_{l+1}) - p(answer | h_l) of
    turn l, and that of the last turn the outcome with all that the environment gave.

    `separate` z-scores gains and outcomes each among themselves over the group, as the authors'
    script does; else together, as in the paper. A group of one has 0. Source: IGPO (arXiv
    2510.14967).
    """
    gains = [needed(episode.information_gains, "information gains") for episode in group]
    outcome = np.array([episode.total_reward for episode in group], np.float64)
    flat = np.concatenate([np.zeros(0), *gains])
    if len(group) < 2:
        scores = np.zeros(len(flat) + len(outcome))
    elif separate:
        scores = np.concatenate([grpo(flat), grpo(outcome)])
    else:
        scores = grpo(np.concatenate([flat, outcome]))
    advantages, place = [], 0
    for index, (episode, row) in enumerate(zip(group, gains, strict=True)):
        own = scores[place : place + len(row)]
        place += len(row)
        # The outcome stands for the last turn, after which no probability is measured.
        numbers = np.append(own, scores[len(flat) + index])[: episode.turns]
        advantages.append(discounted(numbers, discount))
    return advantages
