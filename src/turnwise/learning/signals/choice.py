"""The signals that a recipe and its algorithm ask for: the one place where they are made.

Not here: the models behind some of them, which are loaded (`load_teacher`) or learn
(`second_model.py`).
"""

from collections.abc import Callable, Sequence

from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import Algorithm
from turnwise.config import Recipe
from turnwise.forward.hidden import base_model
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.learner import PolicyScores
from turnwise.learning.signals.base import Signal, Signals
from turnwise.learning.signals.hindsight import Hindsight
from turnwise.learning.signals.information_gain import InformationGain, Oracle
from turnwise.learning.signals.kl_reward import KLReward
from turnwise.learning.signals.penalty import Penalty
from turnwise.learning.signals.score_norms import ScoreNorms
from turnwise.learning.signals.self_teacher import SelfTeacher
from turnwise.learning.signals.value_head import ValueHead, ValueLoss
from turnwise.scaffolds.base import Scaffold


def signals_of(
    recipe: Recipe,
    algorithm: Algorithm,
    learner: PolicyScores,
    scaffold: Scaffold,
    oracle: Oracle,
    models: Sequence[Signal | None],
) -> list[Signal]:
    """The signals of a step: the penalty, those of the run's models (a critic, a model of process
    rewards, a self-teacher, a teacher; None for an absent one), and those that the algorithm asks
    of the policy itself, as the learner has it now."""
    scored, policy = learner.score, base_model(learner.model)
    context = getattr(policy.config.get_text_config(), "max_position_embeddings", None)
    makers: dict[Requirement, Callable[[], Signal]] = {
        Requirement.HINDSIGHT: lambda: Hindsight(scored, scaffold),
        Requirement.INFORMATION_GAIN: lambda: InformationGain(scored, scaffold, oracle, context),
        Requirement.SCORE_NORMS: lambda: ScoreNorms(scored),
    }
    signals: list[Signal] = [Penalty(algorithm, recipe.rollout.max_tokens)]
    signals += [model for model in models if model is not None]
    signals += [make() for need, make in makers.items() if need in algorithm.needs]
    if algorithm.kl_reward_coefficient:
        signals.append(KLReward(learner.reference_logprobs, learner.kl_coefficient))
    return signals


def auxiliary_loss_of(model: Signal | None, signals: Signals) -> AuxiliaryLoss | None:
    """The loss of a model that goes into the policy's updates; None without one."""
    if isinstance(model, ValueHead):
        return ValueLoss(model, signals)
    return model if isinstance(model, SelfTeacher) else None
