"""Choices of an algorithm that do not go together, found when it is put together.

Every check raises a ConfigError that says what to do. Not here: choices that do not go with a
recipe (`turnwise.training.checks`).
"""

from collections.abc import Mapping
from typing import Any

from turnwise.algorithms.algorithm import COEFFICIENTS, Algorithm
from turnwise.algorithms.parts import PARTS, PLAIN_SUM, Requirement, Trait
from turnwise.errors import ConfigError


def check_algorithm(algorithm: Algorithm, row: Algorithm, given: Mapping[str, Any]) -> None:
    """Raise ConfigError for parts or terms that do not go together; `row` is the algorithm without
    its overrides, `given` are those of them that are numbers of parts."""
    _check_rollout(algorithm)
    _check_batch(algorithm)
    _check_lengths(algorithm)
    _check_penalties(algorithm)
    _check_kl(algorithm)
    _check_second_model(algorithm)
    _check_terms(algorithm, row, given)


def _check_rollout(algorithm: Algorithm) -> None:
    """Raise ConfigError unless the rollout gives what the estimator needs: no more, since it costs,
    and no less."""
    rollouts = [PARTS["rollout"].get(name) for name in PARTS["rollout"].names()]
    given = algorithm.part("rollout").gives
    known = given.union(*(rollout.gives for rollout in rollouts))
    needed = algorithm.part("estimator").needs & known
    if given != needed:
        fitting = " or ".join(repr(each.name) for each in rollouts if each.gives == needed)
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator {algorithm.estimator!r} does not go with "
            f"rollout {algorithm.rollout!r}: choose rollout = {fitting}"
        )


def _check_batch(algorithm: Algorithm) -> None:
    """Raise ConfigError for filters beside an estimator that compares over the whole batch before
    they choose."""
    for field in ("group_filter", "trajectory_filter"):
        chosen = getattr(algorithm, field)
        if algorithm.estimator == "gdpo" and chosen != "none":
            raise ConfigError(
                f"estimator gdpo z-scores over all episodes of the batch, also over those that "
                f"{field} = {chosen!r} leaves out: set {field} to 'none'"
            )


def _check_lengths(algorithm: Algorithm) -> None:
    """Raise ConfigError where estimator and aggregation would both divide by lengths."""
    if algorithm.estimator == "tree_grpo" and algorithm.aggregation != PLAIN_SUM:
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator tree_grpo divides by the lengths of paths, "
            f"what they share included, so it goes with aggregation = {PLAIN_SUM!r} alone"
        )


def _check_penalties(algorithm: Algorithm) -> None:
    """Raise ConfigError for a penalty that the estimator can make no sense of."""
    name, estimator = algorithm.name, algorithm.estimator
    if algorithm.reward_shaping != "none" and algorithm.has_trait("estimator", Trait.NO_SHAPING):
        raise ConfigError(
            f"algorithm {name}: estimator {estimator} cannot have the penalties of reward_shaping "
            f"{algorithm.reward_shaping!r} among its rewards: choose another of the two"
        )
    if algorithm.kl_reward_coefficient and algorithm.has_trait("estimator", Trait.NO_PENALTY):
        raise ConfigError(
            f"algorithm {name}: estimator {estimator} cannot have a KL penalty among its "
            "rewards; use kl_coefficient in place of kl_reward_coefficient"
        )


def _check_kl(algorithm: Algorithm) -> None:
    """Raise ConfigError for KL settings that contradict each other or do nothing."""
    name = algorithm.name
    if algorithm.kl_coefficient and algorithm.kl_reward_coefficient:
        raise ConfigError(
            f"algorithm {name}: the KL term is in the loss (kl_coefficient) and in the reward "
            "(kl_reward_coefficient); set one of them to 0"
        )
    if algorithm.kl_target and not algorithm.has_kl:
        raise ConfigError(
            f"algorithm {name}: kl_target adapts a coefficient, but kl_coefficient and "
            "kl_reward_coefficient are 0; set one of them"
        )
    if not algorithm.kl_target and algorithm.kl_horizon != COEFFICIENTS["kl_horizon"].default:
        raise ConfigError(f"algorithm {name}: kl_horizon goes with kl_target, which is 0")


def _check_second_model(algorithm: Algorithm) -> None:
    """Raise ConfigError for a critic or a model of process rewards beside a self-teacher."""
    judged = sorted(algorithm.needs & {Requirement.CRITIC, Requirement.PROCESS_REWARDS})
    if algorithm.self_teacher_coefficient and judged:
        raise ConfigError(
            f"algorithm {algorithm.name}: self_teacher_coefficient does not go with an "
            f"estimator that needs a {judged[0].replace('_', ' ').removesuffix('s')} model: choose "
            "another estimator"
        )


def _check_terms(algorithm: Algorithm, row: Algorithm, given: Mapping[str, Any]) -> None:
    """Raise ConfigError for an algorithm without a policy loss that has no term to train by itself,
    or settings of the missing loss."""
    if algorithm.estimator != "none":
        return
    terms = ("observation_coefficient", "success_coefficient", "self_teacher_coefficient")
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
