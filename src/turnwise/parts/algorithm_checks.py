"""The demands of an algorithm on recipe and environment, and what it comes to with them.

Checks raise a ConfigError that says what to do; warnings are sentences, told when a run begins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.claims import claims_of, has_special_ratio, ratio_note, ratios_are_one
from turnwise.algorithms.estimators import EstimatorInput
from turnwise.algorithms.parts import BYPASS, PARTS, SELF_TEACHERS, Requirement, Trait
from turnwise.config import AlgorithmConfig, Recipe
from turnwise.conflicts import Claim, Need, check
from turnwise.engines.registry import ENGINES
from turnwise.environments.base import Environment, EnvironmentSpec, Rewards
from turnwise.errors import ConfigError, unknown_name
from turnwise.learning.signals.registry import check_makers
from turnwise.rewards.composition import Reward
from turnwise.rewards.parts import Scope
from turnwise.types import Task

EQUAL = 1e-6
"""Advantages of no more than that are 0 up to rounding."""


def check_algorithm_for_recipe(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError where a recipe gives an algorithm too little, or settings of what it does
    not have; loads nothing."""
    check([*recipe.all_claims(), *claims_of_both(recipe, algorithm)])
    _check_signals(recipe.algorithm, algorithm)
    _check_sizes(recipe, algorithm)
    _check_kl(recipe, algorithm)
    check_size = algorithm.part("rollout").check_size
    if check_size is not None and recipe.train.steps:
        check_size(recipe.train.group_size, **algorithm.numbers_of("rollout"))
    if _adds_up_itself(algorithm) and not algorithm.numbers_of("estimator")["reward_weights"]:
        raise ConfigError(
            f"algorithm {algorithm.name} adds up the parts of the reward that it is told: give "
            "their names and weights, as in algorithm.reward_weights.exact_match=1"
        )


def claims_of_both(recipe: Recipe, algorithm: Algorithm) -> Iterator[Claim]:
    """The claims of an algorithm, and those of a recipe's settings that depend on it or on the
    engine's class."""
    yield from claims_of(algorithm)
    if recipe.train.steps and algorithm.correction == BYPASS:
        remedy = 'set algorithm.correction to "none" or "truncated"'
        yield Claim(f"correction {BYPASS}", (Need.SAMPLED_PROBABILITIES,), remedy=remedy)
    if truncates_untold(recipe):
        untold = "does not say which tokens rollout.top_k, top_p and min_p leave"
        denies, remedy = {Need.SAMPLED_PROBABILITIES: untold}, 'set engine.name to "embedded"'
        yield Claim(f"engine {recipe.engine.name}", denies=denies, remedy=remedy)


def claims_of_rewards(environment: Environment, reward: Reward | None) -> Iterator[Claim]:
    """The claims of an environment's rewards, or of the reward in place of them."""
    spec, owner = environment.spec, f"environment {environment.spec.name}"
    if reward is not None:
        spec = replace(spec, turn_rewards=reward.of_turns, rewards=_kind_of(reward))
        owner = "the recipe's reward"
        if reward.of_groups:
            groups = {Need.SINGLE_REWARDS: "is measured of whole groups"}
            yield Claim("a part of the reward", denies=groups, remedy="leave the part out")
    if not spec.turn_rewards:
        remedy = f"name a part of turns in reward.parts, such as {_turn_parts(spec) or 'malformed'}"
        yield Claim(owner, denies={Requirement.TURN_REWARDS.words: "has none"}, remedy=remedy)
    if spec.turn_rewards or spec.rewards != "unknown":
        yield Claim(owner, denies={Need.REWARDS_0_AND_1: "has others"})
    if spec.rewards == "signed":
        yield Claim(owner, denies={Need.REWARDS_FROM_0: "has others"})


def check_algorithm_for_environment(
    recipe: Recipe, algorithm: Algorithm, environment: Environment, reward: Reward | None
) -> None:
    """Raise ConfigError where an environment, or the reward in place of its own, lacks what an
    algorithm needs, or has rewards that it is not for."""
    claims = [*recipe.all_claims(), *claims_of_both(recipe, algorithm), *environment.claims()]
    check([*claims, *claims_of_rewards(environment, reward)])
    if _adds_up_itself(algorithm):
        _check_reward_weights(algorithm, environment.spec, reward)


def _check_reward_weights(
    algorithm: Algorithm, spec: EnvironmentSpec, reward: Reward | None
) -> None:
    """Raise ConfigError for a weight of a number that no verdict has, where it is known which
    numbers of episodes they have."""
    terms = () if reward is None else reward.terms
    known = {name for name, part in spec.parts.items() if part.scope == Scope.TRAJECTORY}
    known |= {term.name for term in terms if term.part.scope != Scope.TURNS}
    for name in algorithm.numbers_of("estimator")["reward_weights"]:
        if spec.parts and name not in known:
            raise unknown_name("algorithm.reward_weights", name, known)


def _adds_up_itself(algorithm: Algorithm) -> bool:
    return algorithm.has_trait("estimator", Trait.NAMED_REWARDS)


def _turn_parts(spec: EnvironmentSpec) -> str:
    return ", ".join(name for name, part in spec.parts.items() if part.scope == Scope.TURNS)


def _kind_of(reward: Reward) -> Rewards:
    # Rewards of 0 and 1 deny nothing, as `unknown` ones do not (`claims_of_rewards`).
    if not reward.terms and (reward.outcome, reward.failure) == (1.0, 0.0):
        return "unknown"
    lowest = min(
        reward.bounds(success, step)[0]
        for success in (True, False)
        for step in reward.steps_of_change
    )
    return "signed" if lowest < 0 else "shares"


def signal_tables(algorithm: Algorithm) -> dict[str, bool]:
    """Whether the algorithm has the signal, for each table of settings below `[algorithm]`."""
    return {
        "critic": Requirement.CRITIC in algorithm.needs,
        "implicit_reward": Requirement.PROCESS_REWARDS in algorithm.needs,
        "teacher": Requirement.TEACHER in algorithm.needs,
        "self_teacher": bool(SELF_TEACHERS & algorithm.needs),
    }


def warnings_of(recipe: Recipe, algorithm: Algorithm, tasks: Sequence[Task] = ()) -> list[str]:
    """List what a run of the recipe, on tasks, should know of its algorithm, in sentences."""
    train = recipe.train
    if not train.steps:
        return []
    warnings = []
    updates = recipe.learning.updates_per_step * recipe.learning.epochs
    one = ratios_are_one(algorithm, updates, train.max_staleness)
    if one and has_special_ratio(algorithm):
        warnings.append(
            f"algorithm {algorithm.name} differs by what it does with importance ratios, and here "
            f"they are all 1: {ratio_note(algorithm)}. Raise learning.updates_per_step or "
            "learning.epochs to use it"
        )
    if _adds_up_itself(algorithm) and len(algorithm.numbers_of("estimator")["reward_weights"]) > 1:
        warnings.append(
            f"algorithm {algorithm.name} compares each number after it is brought to the same "
            "spread, so no range keeps the others from outvoting success: watch rollout/success"
        )
    if train.max_staleness and algorithm.correction == "none":
        warnings.append(
            f"algorithm {algorithm.name} has correction none, and train.max_staleness is "
            f"{train.max_staleness}: nothing corrects for samples of older weights. Set "
            'algorithm.correction to "truncated" or another one'
        )
    if _compares_equal_rewards(algorithm):
        warnings.append(
            f"estimator {algorithm.estimator} gives advantages to a group whose rewards are all "
            "equal, which has nothing to compare: so it pushes whatever was sampled. Give 0 there, "
            "or declare the trait Trait.UNGROUPED if it is meant"
        )
    taught = recipe.algorithm.teacher and recipe.algorithm.teacher.by_environment
    if taught and "" not in taught:
        others = {str(task.info.get("environment")) for task in tasks} - taught.keys()
        warnings += [f"episodes of {name} are not distilled: no teacher" for name in sorted(others)]
    return warnings


def _compares_equal_rewards(algorithm: Algorithm) -> bool:
    """Whether an estimator of one's own, asked about a group with equal rewards, gives anything but
    0. False for one that needs more than rewards, and for one that fails, which says so later."""
    built_in = PARTS["estimator"].is_built_in(algorithm.estimator)
    known = algorithm.has_trait("estimator", Trait.UNGROUPED)
    if built_in or known or algorithm.part("estimator").needs:
        return False
    groups = [
        [EstimatorInput(reward, np.zeros(2, np.int32), np.ones(2, bool)) for _ in range(4)]
        for reward in (0.0, 1.0)  # 1 too: an estimator that gives the reward itself is 0 for 0
    ]
    try:
        found = [one.advantages for group in algorithm.call("estimator", groups) for one in group]
        return bool(np.abs(found).max() > EQUAL)
    except Exception:  # noqa: BLE001 -- the user's code, which says so where it is used
        return False


def _check_signals(config: AlgorithmConfig, algorithm: Algorithm) -> None:
    """Raise ConfigError for settings of signals that the algorithm does not have, for a missing
    teacher, and for signals that nothing installed can make."""
    check_makers(algorithm)
    has = signal_tables(algorithm)
    for name, there in has.items():
        if getattr(config, name) is not None and not there:
            raise ConfigError(
                f"algorithm.{name} is set, but algorithm {algorithm.name} has no "
                f"{name.replace('_', ' ')}: leave it out, or choose an algorithm that has one"
            )
    if has["teacher"] and not (config.teacher and config.teacher.model):
        raise ConfigError(f"{algorithm.name} needs a teacher: set algorithm.teacher.model")


def _check_sizes(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for groups, or steps, in which there is too little to compare."""
    members = list(_trajectories_needed(recipe, algorithm))
    needed = [
        ("train.group_size", recipe.train.group_size, members),
        ("train.tasks_per_step", recipe.train.tasks_per_step, _tasks_needed(recipe, algorithm)),
    ]
    for section in recipe.added().values():
        needed += [(key, size, members) for key, size in section.group_sizes().items()]
    for key, given, reasons in needed:
        for least, reason in reasons:
            if given < least:
                raise ConfigError(f"{key} is {given}, and {reason}: give at least {least:g}")


def _trajectories_needed(recipe: Recipe, algorithm: Algorithm) -> Iterator[tuple[float, str]]:
    """Pairs of the fewest trajectories of a group, and what needs them."""
    name, estimator = algorithm.name, algorithm.estimator
    if not recipe.train.steps:
        return
    if not algorithm.has_trait("estimator", Trait.UNGROUPED):
        yield 2, f"estimator {estimator} of algorithm {name} compares within a group"
    if algorithm.group_filter != "none":
        which = f"group_filter {algorithm.group_filter} of algorithm {name}"
        yield 2, f"{which} keeps groups whose rewards differ"
    if recipe.monitor.echo_trap.reaction == "filter":
        yield 2, "monitor.echo_trap.reaction = filter keeps groups whose rewards differ"
    if algorithm.self_teacher_coefficient:
        yield 2, f"the self-teacher of algorithm {name} reads another success of the group"
    k = algorithm.numbers_of("estimator").get("k")
    if k is not None:
        yield k, f"algorithm {name} takes the best of k = {k:g} trajectories"


def _tasks_needed(recipe: Recipe, algorithm: Algorithm) -> Iterator[tuple[float, str]]:
    """Pairs of the fewest tasks of a step, and what needs them."""
    updates = recipe.learning.updates_per_step
    yield updates, f"each of learning.updates_per_step = {updates} has groups of its own"
    if recipe.monitor.mutual_information is not None:
        yield 2, "monitor.mutual_information compares tasks"
    alone = recipe.train.steps > 0 and recipe.train.group_size < 2
    if algorithm.estimator == "reinforce_baseline" and alone:
        yield 2, f"algorithm {algorithm.name} compares with the batch's others, in groups of one"


def truncates_untold(recipe: Recipe) -> bool:
    """Whether tokens are drawn among some of the vocabulary, and the engine does not say among
    which, so that the learner's probabilities are others."""
    return recipe.rollout.truncates and not ENGINES.get(recipe.engine.name).returns_kept


def _check_kl(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for KL terms that would do nothing, or too much."""
    train = recipe.train
    updates = recipe.learning.updates_per_step * recipe.learning.epochs
    if algorithm.token_filter == "kl_cov" and updates == 1:
        raise ConfigError(
            f"algorithm {algorithm.name}: token_filter kl_cov holds tokens back to the policy "
            "before a step's first update, so it needs learning.updates_per_step or "
            "learning.epochs of 2 or more"
        )
    episodes = train.tasks_per_step * train.group_size * (1 + train.dynamic_sampling_rounds)
    # The factor of a step is 1 - 0.2 * episodes / horizon at the least (`adapted_coefficient`).
    if algorithm.kl_target and episodes >= 5 * algorithm.kl_horizon:
        raise ConfigError(
            f"algorithm {algorithm.name}: kl_horizon is {algorithm.kl_horizon:g}, but a step may "
            f"have {episodes} trajectories: the KL coefficient could become 0 at once; raise it"
        )
