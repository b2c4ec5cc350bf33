"""The model that an algorithm has beside its policy, which judges trajectories and learns with it.

It is decided here alone whether there is one, of one process or of several. Not here: a teacher,
which never changes (`teacher.py`), and when the models learn (`training/learners.py`).
"""

from collections.abc import Callable

from torch import nn

from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import Algorithm
from turnwise.config import (
    ImplicitRewardConfig,
    Recipe,
    SelfTeacherConfig,
    SeparateCriticConfig,
    ValueHeadConfig,
)
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.implicit_reward import ImplicitReward
from turnwise.learning.signals.self_teacher import Divided, SelfTeacher, Words
from turnwise.learning.signals.value_head import ValueHead
from turnwise.models.copies import copy_to_divide

SecondModel = Critic | ImplicitReward | SelfTeacher


def second_model(
    recipe: Recipe,
    algorithm: Algorithm,
    policy: nn.Module,
    words: Words | None,
    ranks: Ranks = ALONE,
) -> Callable[[PolicyLearner], SecondModel] | None:
    """Begin to make the second model of an algorithm; None where it has none.

    To be called before ranks divide the policy, since most are copies of it; what is returned makes
    the model, once the policy's learner is there. `words` are a self-teacher's.
    """
    settings, learning = recipe.algorithm, recipe.learning
    if Requirement.CRITIC in algorithm.needs:
        config = settings.critic or SeparateCriticConfig()
        if isinstance(config, ValueHeadConfig):
            return lambda own: ValueHead(own.model, config, learning, ranks, own.compute)
        critic = Critic(policy, config, learning, ranks)
        return lambda own: critic
    if Requirement.PROCESS_REWARDS in algorithm.needs:
        copied = _copied(policy, ranks)
        return lambda own: ImplicitReward(
            own.model,
            own.reference_logprobs,
            settings.implicit_reward or ImplicitRewardConfig(),
            learning,
            own.temperature,
            ranks,
            copied,
        )
    if algorithm.self_teacher_coefficient:
        assert words is not None
        average = _copied(policy, ranks)
        return lambda own: SelfTeacher(
            own.model,
            words,
            settings.self_teacher or SelfTeacherConfig(),
            learning,
            algorithm.self_teacher_coefficient,
            own.temperature,
            None if average is None else Divided(ranks, own.compute, average),
        )
    return None


def _copied(policy: nn.Module, ranks: Ranks) -> nn.Module | None:
    """A copy for ranks to divide; None on one process, where the second model makes its own."""
    return None if ranks.count == 1 else copy_to_divide(policy)
