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
    SELF_TEACHERS,
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
        denies = dict(_denied(algorithm, choice))
        if algorithm.has_trait(choice, Trait.NAMED_REWARDS):
            needs = (Need.NAMED_REWARDS, *needs)
        if choice == "reward_shaping" and part.name != "none":
            needs = (Need.SHAPED_REWARDS, *needs)
        if needs or denies:
            yield Claim(setting, needs, denies, f"choose another {choice}")
    yield from _claims_of_terms(algorithm)


def _denied(algorithm: Algorithm, choice: str) -> Iterator[tuple[str, str]]:
    """Pairs of a need that a part denies, and why."""
    part = algorithm.part(choice)
    if Trait.NO_SHAPING in part.traits:
        yield Need.SHAPED_REWARDS, "cannot have any"
    if Trait.NO_PENALTY in part.traits:
        yield Need.KL_PENALTY, "cannot have any"
    if Trait.NAMED_REWARDS in part.traits:
        yield Need.SUMMED_REWARD, "has weights of its own (algorithm.reward_weights)"
    if part.gives:
        yield Need.SPARE_EPISODES, "needs each of its own"
    if choice in ("group_filter", "trajectory_filter") and part.name != "none":
        yield Need.WHOLE_BATCH, "leaves some out"
    if choice == "group_filter" and part.name == "none":
        yield Need.GROUPS_LEFT_OUT, "leaves none out"
    if choice == "aggregation" and part.name != PLAIN_SUM:
        yield Need.PLAIN_SUM, "divides them by lengths or numbers"
    if choice == "estimator" and part.name == "none":
        yield Need.POLICY_LOSS, "has none"


def _claims_of_terms(algorithm: Algorithm) -> Iterator[Claim]:
    """The claims of an algorithm's coefficients."""
    if algorithm.kl_coefficient:
        yield Claim("kl_coefficient", (ONE_KL,), remedy="set kl_coefficient to 0")
    if algorithm.kl_reward_coefficient:
        reward = {ONE_KL: "puts one into the reward"}
        remedy = "use kl_coefficient in place of kl_reward_coefficient"
        yield Claim("kl_reward_coefficient", (Need.KL_PENALTY,), reward, remedy)
    if algorithm.observation_coefficient:
        setting = f"observation_coefficient of algorithm {algorithm.name}"
        yield Claim(setting, denies={Need.OBSERVATIONS: "trains them by itself"})
    for teacher in sorted(SELF_TEACHERS & algorithm.needs):
        setting = f"{teacher}_coefficient of algorithm {algorithm.name}"
        second = {Requirement.CRITIC, Requirement.PROCESS_REWARDS, *SELF_TEACHERS} - {teacher}
        denies = {need.words: "has the place of the second model" for need in second}
        needs = (Need.ONE_CONTEXT, Need.WORDS, Need.TASK_EPISODES, teacher.words)
        yield Claim(setting, needs, denies, "choose another algorithm")


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
