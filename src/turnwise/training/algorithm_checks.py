"""The demands of an algorithm on recipe and environment, and what it comes to with them.

Checks raise a ConfigError that says what to do; warnings are sentences, told when a run begins. Not
here: which parts of an algorithm go together (`algorithms/contradictions.py`), and what else cannot
work together in a run (`checks`).
"""

from turnwise.algorithms.parts import Requirement, Trait
from turnwise.algorithms.ratios import has_special_ratio, ratio_note, ratios_are_one
from turnwise.algorithms.registry import Algorithm
from turnwise.config import ImplicitRewardConfig, Recipe
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError
from turnwise.rollout.trees import check_tree_size


def check_algorithm_for_recipe(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError where a recipe gives an algorithm too little, or settings of what it does
    not have; loads nothing."""
    if recipe.train.steps:
        _check_groups(recipe, algorithm)
    if recipe.learning.updates_per_step > recipe.train.tasks_per_step:
        raise ConfigError("learning.updates_per_step is more than train.tasks_per_step: lower it")
    if algorithm.estimator == "gdpo" and not algorithm.numbers_of("estimator")["reward_weights"]:
        raise ConfigError(
            f"algorithm {algorithm.name} adds up the parts of the reward that it is told: give "
            "their names and weights, as in algorithm.reward_weights.exact_match=1"
        )
    _check_unused(recipe, algorithm)
    _check_kl(recipe, algorithm)


def check_algorithm_for_environment(algorithm: Algorithm, environment: Environment) -> None:
    """Raise ConfigError where an environment lacks what an algorithm needs, or has rewards that it
    is not for."""
    spec = environment.spec
    if Requirement.RESTORABLE in algorithm.needs and not environment.restorable:
        raise ConfigError(
            f"algorithm {algorithm.name}: rollout {algorithm.rollout} goes on from the middle of "
            f"episodes, and environment {spec.name} has no snapshot() and restore()"
        )
    if Requirement.TURN_REWARDS in algorithm.needs and not spec.turn_rewards:
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator {algorithm.estimator} needs a reward per turn, "
            f"and environment {spec.name} gives none; see `turnwise algorithms`"
        )
    if algorithm.estimator == "pass_at_k" and (spec.turn_rewards or spec.rewards != "unknown"):
        _refuse_rewards(algorithm, spec.name, "of 0 and 1")
    if algorithm.estimator == "max_rl" and spec.rewards == "signed":
        _refuse_rewards(algorithm, spec.name, "of 0 and more")


def warnings_of(recipe: Recipe, algorithm: Algorithm) -> list[str]:
    """List what a run of the recipe should know of its algorithm, in sentences."""
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
    if train.max_staleness and algorithm.correction == "none":
        warnings.append(
            f"algorithm {algorithm.name} has correction none, and train.max_staleness is "
            f"{train.max_staleness}: nothing corrects for samples of older weights. Set "
            'algorithm.correction to "truncated" or another one'
        )
    return warnings


def _refuse_rewards(algorithm: Algorithm, environment: str, wanted: str) -> None:
    raise ConfigError(
        f"algorithm {algorithm.name}: estimator {algorithm.estimator} is for rewards {wanted}, and "
        f"environment {environment} gives others: choose another estimator, or another reward of "
        "the environment's"
    )


def _check_groups(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for groups in which nothing could be compared, or that the rollout cannot
    make."""
    train = recipe.train
    if algorithm.rollout == "random_branches":
        check_tree_size(train.group_size, **algorithm.numbers_of("rollout"))
    if train.group_size < 2:
        _check_groups_of_one(recipe, algorithm)
    k = algorithm.numbers_of("estimator").get("k", 1)
    if algorithm.estimator == "pass_at_k" and k > train.group_size:
        raise ConfigError(
            f"algorithm {algorithm.name}: the best of k = {k:g} trajectories needs groups of as "
            f"many, and train.group_size is {train.group_size}: raise it, or lower k"
        )
    if recipe.rollout.temperature == 0:
        raise ConfigError("rollout.temperature is 0: all trajectories of a group would be the same")


def _check_groups_of_one(recipe: Recipe, algorithm: Algorithm) -> None:
    one, name = "train.group_size is 1", algorithm.name
    if not algorithm.has_trait("estimator", Trait.UNGROUPED):
        raise ConfigError(
            f"{one}, and estimator {algorithm.estimator} of algorithm {name} compares trajectories "
            "within their group: give at least 2"
        )
    if algorithm.group_filter != "none" or recipe.monitor.echo_trap == "filter":
        which = "monitor.echo_trap = filter"
        if algorithm.group_filter != "none":
            which = f"group_filter {algorithm.group_filter} of algorithm {name}"
        raise ConfigError(f"{one}, and {which} keeps groups whose rewards differ: give at least 2")
    if algorithm.self_teacher_coefficient:
        raise ConfigError(
            f"{one}, and the self-teacher of algorithm {name} reads another success of the group: "
            "give at least 2"
        )
    if algorithm.estimator == "reinforce_baseline" and recipe.train.tasks_per_step < 2:
        raise ConfigError(
            f"{one} and so is train.tasks_per_step, but estimator reinforce_baseline of algorithm "
            f"{name} compares with the batch's others: raise one of them"
        )


def _check_unused(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for settings of what the algorithm does not have."""
    if recipe.train.dynamic_sampling_rounds and algorithm.group_filter == "none":
        raise ConfigError(
            "train.dynamic_sampling_rounds samples in place of groups that are dropped, but "
            f"algorithm {algorithm.name} drops none: give it a group_filter"
        )
    unused = recipe.implicit_reward != ImplicitRewardConfig()
    if unused and Requirement.PROCESS_REWARDS not in algorithm.needs:
        raise ConfigError(
            f"implicit_reward is set, but algorithm {algorithm.name} has no process rewards"
        )


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
    if algorithm.kl_target and episodes >= 5 * algorithm.kl_horizon:
        raise ConfigError(
            f"algorithm {algorithm.name}: kl_horizon is {algorithm.kl_horizon:g}, but a step may "
            f"have {episodes} trajectories: the KL coefficient could become 0 at once; raise it"
        )
