"""Algorithms where all importance ratios are 1, and what they reduce to there.

In the first update on samples of the present policy every ratio to it is 1: clips, windows, gates
and means of ratios change nothing then, and algorithms that differ in them alone have the same
gradient.
"""

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import BYPASS, Trait

PLAIN = ("clip", "policy_gradient")
"""Objectives for which a ratio of 1 is nothing special: they are what the others come to."""


def has_special_ratio(algorithm: Algorithm) -> bool:
    """Whether the algorithm has a policy loss, and does something with ratios that comes to nothing
    at 1."""
    special = algorithm.objective not in PLAIN or algorithm.ratio_level != "token"
    known = algorithm.has_trait("objective", Trait.PLAIN_AT_ONE)
    return special and known and algorithm.estimator != "none"


def ratios_are_one(algorithm: Algorithm, updates_per_step: int, max_staleness: int) -> bool:
    """Whether every update begins with all ratios at 1, up to the sampler's rounding: one update a
    step, on samples of the present policy, or with ratios to the learner's own."""
    return updates_per_step == 1 and (max_staleness == 0 or algorithm.correction != BYPASS)


def ratio_note(algorithm: Algorithm) -> str:
    """A note for people who compare algorithms; empty where there is nothing to note."""
    if not has_special_ratio(algorithm):
        return ""
    same = "grpo" if _differs_from_grpo_in_ratios_alone(algorithm) else "objective clip per token"
    return f"with one update a step, and nothing stale, its gradient is that of {same}"


def _differs_from_grpo_in_ratios_alone(algorithm: Algorithm) -> bool:
    grpo = Algorithm("grpo", "")
    choices = ("estimator", "whitening", "aggregation", "group_filter", "token_filter", "rollout")
    return all(getattr(algorithm, key) == getattr(grpo, key) for key in choices)
