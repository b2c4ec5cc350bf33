"""Learning without a run: the policy's learner and its credits, from components alone.

Not here: algorithms with a second model, which have to be saved and gone on with (`learners.py`).
"""

from collections.abc import Sequence

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import SECOND_MODELS, Requirement
from turnwise.config import Recipe
from turnwise.conflicts import Claim, Need, check
from turnwise.errors import ConfigError
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import measure
from turnwise.learning.signals.makers import signals_of
from turnwise.parts.checks import check_parts
from turnwise.parts.components import Components
from turnwise.parts.first_checks import algorithm_of, check_environment
from turnwise.parts.one_process import run_learner
from turnwise.types import Group


def learner_of(components: Components) -> PolicyLearner:
    """See `turnwise.make_learner`."""
    recipe = components.recipe
    algorithm = algorithm_of(recipe)
    _check_alone(recipe, algorithm)
    environment, tasks = components.environment, components.environment.tasks("train")
    check_environment(recipe, environment, components.reward, algorithm, tasks)
    check_parts(components, algorithm, tasks)
    return run_learner(recipe, algorithm, components.model, None, None)


def credits_of(components: Components, learner: PolicyLearner, groups: Sequence[Group]) -> Credits:
    """See `turnwise.estimate`."""
    recipe, oracle = components.recipe, components.environment.oracle
    asked = signals_of(recipe, learner.algorithm, learner, components.scaffold, oracle, ())
    return estimate(groups, measure(asked, groups), learner.algorithm)


def _check_alone(recipe: Recipe, algorithm: Algorithm) -> None:
    check([*recipe.all_claims(), Claim("turnwise.make_learner", (Need.ONE_LEARNER,))])
    more = algorithm.needs & {*SECOND_MODELS, Requirement.TEACHER}
    beside = [need.words for need in sorted(more)]
    beside += ["demonstrations"] * bool(algorithm.demonstration_coefficient)
    if beside:
        raise ConfigError(
            f"algorithm {recipe.algorithm.name} learns with more than its groups "
            f"({', '.join(beside)}): use turnwise.train"
        )
