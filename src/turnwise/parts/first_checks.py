"""Checks of a recipe before a model library is imported: its mistakes are said within two seconds.

The environment is made, its tasks and demonstrations are read; nothing is played. What depends on
the model or its tokenizer is checked later (`checks.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import Recipe, RecordedDemonstrations, ScriptedDemonstrations
from turnwise.config.section import IS_MODEL
from turnwise.conflicts import check
from turnwise.engines.registry import ENGINES, WITHOUT_TOKENS
from turnwise.environments.base import Environment, Split
from turnwise.environments.registry import ENVIRONMENTS, environment_of
from turnwise.environments.splits import check_splits
from turnwise.errors import ConfigError, DataError, NotSupportedError
from turnwise.models.places import check_model
from turnwise.parts.algorithm_checks import (
    check_algorithm_for_environment,
    check_algorithm_for_recipe,
)
from turnwise.parts.rewarding import parts_of_models, reward_of
from turnwise.rewards.composition import Reward
from turnwise.rewards.parts import Scope
from turnwise.rollout.demonstrations import check_behaviours
from turnwise.rollout.order import choose_tasks
from turnwise.sandbox.base import CodeSandbox
from turnwise.scaffolds.registry import SCAFFOLDS, check_scaffold
from turnwise.threads import configure_threads
from turnwise.types import Task
from turnwise.wings import wings


@dataclass(frozen=True)
class Known:
    """The parts of a recipe that need no model. Example: `known_of(recipe).environment`."""

    algorithm: Algorithm
    environment: Environment
    reward: Reward | None
    """The reward in place of the environment's own; of parts that models measure, with ranges."""


@dataclass(frozen=True)
class KnownRun(Known):
    """The parts of a run that need no model. Example: `known_run(recipe).tasks`."""

    tasks: Sequence[Task]
    """The tasks of training; empty where nothing is trained."""
    heldout: Sequence[Task]
    """The tasks of evaluation."""
    validation: Sequence[Task]
    """More held-out tasks, for evaluations during RL; empty where there are none."""


def configure(recipe: Recipe) -> None:
    """Refuse unknown names; then set the threads."""
    check_names(recipe)
    configure_threads(recipe.threads)


def check_names(recipe: Recipe) -> Algorithm:
    """Raise ConfigError for a name in a recipe that stands for nothing; returns its algorithm. Of a
    user's own code it loads the parts of the algorithm alone."""
    if recipe.engine.name not in WITHOUT_TOKENS:
        ENGINES.check(recipe.engine.name)
    SCAFFOLDS.check(recipe.scaffold.name)
    ENVIRONMENTS.check(recipe.environment.name)
    return make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)


def known_of(recipe: Recipe, algorithm: Algorithm | None = None) -> Known:
    """Make what a policy is played with, beside its model. Raises ConfigError where the
    environment, its sandbox, the judge or the reward cannot be had."""
    algorithm = algorithm or check_names(recipe)
    # What wings know of a choice of theirs, such as whether this machine has what it needs.
    chosen = {f"engine.{recipe.engine.name}", f"scaffold.{recipe.scaffold.name}", *recipe.added()}
    for name in sorted(chosen & wings().parts("first_check").keys()):
        wings().part("first_check", name)(recipe)
    check_scaffold(recipe.scaffold)
    environment = environment_of(recipe)
    if isinstance(environment.sandbox, CodeSandbox):
        environment.sandbox.find_tier()
    check([*recipe.all_claims(), *environment.claims()])
    reward = reward_of(recipe, algorithm, environment, parts_of_models(recipe))
    return Known(algorithm, environment, reward)


def known_run(recipe: Recipe, fresh: bool = True) -> KnownRun:
    """Make what a run needs beside a model; a run that goes on has read its demonstrations.

    Raises ConfigError or DataError, in one line, for whatever of it is wrong.
    """
    algorithm = algorithm_of(recipe, fresh)

    @cache  # a hub is asked once, also where two parts have one model
    def checked(name: str) -> str:
        check_model(recipe.model.model_copy(update={"name": name}), recipe.rollout.max_tokens)
        return name

    recipe.with_texts(IS_MODEL, checked)  # the policy's, a teacher's, that of `evaluation.base`
    known = known_of(recipe, algorithm)
    environment, reward = known.environment, known.reward
    learned = recipe.train.steps + recipe.sft.steps + recipe.policy_updates
    tasks = _tasks(recipe, environment, "train", learned)
    check_environment(recipe, environment, reward, algorithm, tasks)
    heldout, validation = _heldout(recipe, environment)
    check_splits(environment, tasks, [*heldout, *validation])
    return KnownRun(algorithm, environment, reward, tasks, heldout, validation)


def algorithm_of(recipe: Recipe, fresh: bool = True) -> Algorithm:
    """The algorithm of a recipe, which goes with all that the recipe trains; loads nothing else.

    Raises ConfigError for what contradicts itself or would do nothing, DataError for a file of
    demonstrations that cannot be used, which a run that goes on has read.
    """
    recipe.check_tokens()
    algorithm = check_names(recipe)
    check_algorithm_for_recipe(recipe, algorithm)
    check_trackers(recipe)
    _check_demonstrations(recipe, algorithm, fresh)
    return algorithm


def check_trackers(recipe: Recipe) -> None:
    """Raise ConfigError for a tracker that there is not, MissingExtraError for one whose package is
    not installed. Imports no package of a tracker."""
    if recipe.monitor.trackers:
        wings().part("monitor", "trackers")(recipe)


def evaluated(recipe: Recipe) -> Known:
    """Make what an evaluation needs beside a model. Raises as `known_of`, and where the model
    cannot be had, or there is nothing to evaluate."""
    known = known_of(recipe)
    if not recipe.evaluation.tasks or not known.environment.tasks("heldout"):
        raise ConfigError("there is nothing to evaluate: no held-out tasks, or evaluation.tasks=0")
    check_model(recipe.model, recipe.rollout.max_tokens)
    return known


def check_environment(
    recipe: Recipe,
    environment: Environment,
    reward: Reward | None,
    algorithm: Algorithm,
    tasks: Sequence[Task],
) -> None:
    """Raise ConfigError where an environment lacks what the recipe and its algorithm need; `tasks`
    are those of training, with their secrets; the reward is that in place of its own."""
    _check_programs(recipe, environment)
    _check_horizon(recipe, environment)
    check_algorithm_for_environment(recipe, algorithm, environment, reward)
    scripted = isinstance(recipe.sft.demonstrations, ScriptedDemonstrations)
    if scripted and demonstrates(recipe, algorithm):
        _check_oracle(environment, tasks[0])


def _check_demonstrations(recipe: Recipe, algorithm: Algorithm, fresh: bool) -> None:
    chosen = recipe.sft.demonstrations
    if not demonstrates(recipe, algorithm):
        return
    if isinstance(chosen, ScriptedDemonstrations):
        check_behaviours(chosen.behaviours)
    elif isinstance(chosen, RecordedDemonstrations) and fresh:
        from turnwise.parts.conversations import read_conversations

        read_conversations(Path(chosen.file))


def demonstrates(recipe: Recipe, algorithm: Algorithm) -> bool:
    """Whether there are demonstrations: for the cold start, to be mixed into RL, or to compare with
    imitation alone."""
    mixed_in = recipe.train.steps and algorithm.demonstration_coefficient
    return bool(recipe.sft.steps or mixed_in or recipe.evaluation.sft)


def _heldout(recipe: Recipe, environment: Environment) -> tuple[Sequence[Task], Sequence[Task]]:
    """The tasks of evaluation and those of evaluations during RL, without any in common. Raises
    ConfigError where there are too few for both."""
    config = recipe.evaluation
    during = config.during_rl.tasks if config.during_rl is not None else 0
    found = _tasks(recipe, environment, "heldout", config.tasks + during)
    chosen = choose_tasks(found, config.tasks + during, config.seed)
    if during and len(chosen) < config.tasks + during:
        raise ConfigError(
            f"evaluation.tasks = {config.tasks} and evaluation.during_rl.tasks = {during} have no "
            f"task in common, and there are {len(found)} held-out tasks: lower one of them"
        )
    return chosen[: config.tasks], chosen[config.tasks :]


def _tasks(recipe: Recipe, environment: Environment, split: Split, wanted: int) -> Sequence[Task]:
    tasks = environment.tasks(split) if wanted else []
    if wanted and not tasks:
        raise DataError(f"environment {recipe.environment.name} has no {split} tasks")
    return tasks


def _check_horizon(recipe: Recipe, environment: Environment) -> None:
    """Raise ConfigError for a horizon that grows with a number which the environment does not
    report of episodes."""
    horizon, parts = recipe.rollout.horizon, environment.spec.parts
    known = [name for name, part in parts.items() if part.scope == Scope.TRAJECTORY]
    if horizon is not None and horizon.part and horizon.part not in known:
        raise ConfigError(
            f"rollout.horizon.part is {horizon.part!r}, but of an episode the environment reports "
            f"{', '.join(known) or 'nothing'}: name one of these, or leave part out"
        )


def _check_programs(recipe: Recipe, environment: Environment) -> None:
    """Raise ConfigError where programs may run for longer than their verdict has: an agent that
    writes them could have an episode left ungraded."""
    sandbox, most = environment.sandbox, recipe.rollout.max_seconds
    if not isinstance(sandbox, CodeSandbox):
        return
    seconds, programs = sandbox.settings.limits.seconds, environment.verdict_programs
    if programs * seconds >= most:
        count = "one" if programs == 1 else str(programs)
        raise ConfigError(
            f"programs in the sandbox may run for {seconds:g} seconds, and a verdict that runs "
            f"{count} has rollout.max_seconds = {most:g}: raise rollout.max_seconds, or lower the "
            "environment's seconds"
        )


def _check_oracle(environment: Environment, task: Task) -> None:
    try:
        environment.oracle(task)
    except NotSupportedError as error:
        raise ConfigError(
            f"the cold start needs the environment's oracle: {error}. Set sft.steps=0, or give the "
            "environment one"
        ) from error
