"""The needs of an algorithm's choices, what they deny each other, and what its ratios come to.

In the first update on samples of the present policy every ratio to it is 1: clips, windows, gates
and means of ratios change nothing then, and algorithms that differ in them alone are the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.algorithms.algorithm import COEFFICIENTS, Algorithm
from turnwise.algorithms.parts import (
    BYPASS,
    GIVEN_BY_ROLLOUTS,
    PARTS,
    PLAIN_SUM,
    SECOND_MODELS,
    SELF_TEACHERS,
    Part,
    Requirement,
    Trait,
)
from turnwise.conflicts import Claim, Need, check
from turnwise.errors import ConfigError

ONE_KL = "a KL term in one place alone"


def claims_of(algorithm: Algorithm) -> Iterator[Claim]:
    """The claims of its parts, then those of its terms."""
    for choice in PARTS:
        part = algorithm.part(choice)
        needs = (*part.conditions, *(need.words for need in sorted(part.needs)))
        setting = f"{choice} {part.name} of algorithm {algorithm.name}"
        if part.needs & SECOND_MODELS:
            needs = (Need.SECOND_MODEL, *needs)
        if choice == "reward_shaping" and part.name != "none":
            needs = (Need.SHAPED_REWARDS, *needs)
        yield Claim(setting, needs, _denied(part), f"choose another {choice}")
    yield from _claims_of_terms(algorithm)


def _denied(part: Part) -> dict[str, str]:
    """The needs that a part denies, each with the reason."""
    choice, traits, is_none = part.choice, part.traits, part.name == "none"
    filters = choice in ("group_filter", "trajectory_filter") and not is_none
    divides = choice == "aggregation" and part.name != PLAIN_SUM
    rules = [
        (Trait.NO_SHAPING in traits, Need.SHAPED_REWARDS, "cannot have any"),
        (Trait.NO_PENALTY in traits, Need.KL_PENALTY, "cannot have any"),
        (Trait.NAMED_REWARDS in traits, Need.SUMMED_REWARD, "has reward_weights of its own"),
        (part.gives, Need.SPARE_EPISODES, "needs each of its own"),
        (filters, Need.WHOLE_BATCH, "leaves some out"),
        (choice == "group_filter" and is_none, Need.GROUPS_LEFT_OUT, "leaves none out"),
        (divides, Need.PLAIN_SUM, "divides them by lengths or numbers"),
        (choice == "estimator" and is_none, Need.POLICY_LOSS, "has none"),
        (choice == "estimator" and part.needs, Need.REWARDS_ALONE, "needs more"),
        (part.needs & SECOND_MODELS, Need.SECOND_MODEL, "has it"),
        (Need.OBSERVATIONS in part.conditions, Need.OBSERVATIONS, "trains them by itself"),
    ]
    return {need: reason for denied, need, reason in rules if denied}


def _claims_of_terms(algorithm: Algorithm) -> Iterator[Claim]:
    """The claims of an algorithm's coefficients."""
    if algorithm.kl_coefficient:
        yield Claim("kl_coefficient", (ONE_KL,), remedy="set kl_coefficient to 0")
    if algorithm.kl_reward_coefficient:
        reward = {ONE_KL: "puts one into the reward", Need.REWARDS_ALONE: "adds to them"}
        remedy = "use kl_coefficient in place of kl_reward_coefficient"
        yield Claim("kl_reward_coefficient", (Need.KL_PENALTY,), reward, remedy)
    if algorithm.observation_coefficient:
        setting = f"observation_coefficient of algorithm {algorithm.name}"
        yield Claim(setting, denies={Need.OBSERVATIONS: "trains them by itself"})
    for teacher in sorted(SELF_TEACHERS & algorithm.needs):
        setting = f"{teacher}_coefficient of algorithm {algorithm.name}"
        needs = (Need.ONE_CONTEXT, Need.WORDS, Need.TASK_EPISODES, Need.SECOND_MODEL, teacher.words)
        yield Claim(setting, needs, {Need.SECOND_MODEL: "has it"}, "choose another algorithm")


def check_algorithm(algorithm: Algorithm, row: Algorithm, given: Mapping[str, Any]) -> None:
    """Raise ConfigError for parts or terms that do not go together; `row` is without overrides, of
    which `given` are the numbers of parts."""
    _check_rollout(algorithm)
    check(claims_of(algorithm))
    _check_kl(algorithm)
    _check_terms(algorithm, row, given)


def _check_rollout(algorithm: Algorithm) -> None:
    """Raise ConfigError unless the rollout gives what the estimator needs: no more, as it costs."""
    given = algorithm.part("rollout").gives
    needed = algorithm.part("estimator").needs & (given | GIVEN_BY_ROLLOUTS)
    if given != needed:
        rollouts = map(PARTS["rollout"].get, PARTS["rollout"].names())
        fitting = " or ".join(repr(each.name) for each in rollouts if each.gives == needed)
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator {algorithm.estimator!r} does not go with "
            f"rollout {algorithm.rollout!r}: choose rollout = {fitting}"
        )


def _check_kl(algorithm: Algorithm) -> None:
    """Raise ConfigError for settings of a KL term that is not there."""
    name = algorithm.name
    if algorithm.kl_target and not algorithm.has_kl:
        raise ConfigError(
            f"algorithm {name}: kl_target adapts a coefficient, but kl_coefficient and "
            "kl_reward_coefficient are 0; set one of them"
        )
    if not algorithm.kl_target and algorithm.kl_horizon != COEFFICIENTS["kl_horizon"].default:
        raise ConfigError(f"algorithm {name}: kl_horizon goes with kl_target, which is 0")


def _check_terms(algorithm: Algorithm, row: Algorithm, given: Mapping[str, Any]) -> None:
    """Raise ConfigError where nothing is trained, or for settings of a missing policy loss."""
    if algorithm.estimator != "none":
        return
    teachers = (f"{need}_coefficient" for need in sorted(SELF_TEACHERS))
    terms = ("observation_coefficient", "success_coefficient", *teachers)
    if not any(getattr(algorithm, term) for term in terms):
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator none has no policy loss, so nothing would be "
            f"learned: set one of {', '.join(terms)}"
        )
    choices = ("objective", "ratio_level", "whitening")
    changed = [key for key in choices if getattr(algorithm, key) != getattr(row, key)]
    changed += [key for key in given if key in algorithm.part("objective").numbers]
    if changed:
        raise ConfigError(
            f"algorithm {algorithm.name}: {changed[0]} is of the policy loss, and estimator none "
            "has none: leave it out, or choose another estimator"
        )


PLAIN = ("clip", "policy_gradient")
"""Objectives for which a ratio of 1 is nothing special: they are what the others come to."""


def has_special_ratio(algorithm: Algorithm) -> bool:
    """Whether there is a policy loss that does with ratios what comes to nothing at 1."""
    special = algorithm.objective not in PLAIN or algorithm.ratio_level != "token"
    known = algorithm.has_trait("objective", Trait.PLAIN_AT_ONE)
    return special and known and algorithm.estimator != "none"


def ratios_are_one(algorithm: Algorithm, updates_per_step: int, max_staleness: int) -> bool:
    """Whether every update begins with all ratios at 1, up to the sampler's rounding: one update a
    step, on samples of the present policy alone, or with ratios to the learner's own."""
    known = max_staleness == 0 or algorithm.correction != BYPASS
    return updates_per_step == 1 and known and Requirement.REPLAY not in algorithm.needs


def ratio_note(algorithm: Algorithm) -> str:
    """A note for people who compare algorithms; empty where there is nothing to note."""
    if not has_special_ratio(algorithm):
        return ""
    same = "grpo" if _differs_from_grpo_in_ratios_alone(algorithm) else "objective clip per token"
    return f"with one update a step, and nothing stale, its gradient is that of {same}"


def _differs_from_grpo_in_ratios_alone(algorithm: Algorithm) -> bool:
    choices = ("estimator", "aggregation", "group_filter", "token_filter", "extension", "rollout")
    same = all(getattr(algorithm, key) == getattr(Algorithm, key) for key in choices)
    return same and not algorithm.whitening
