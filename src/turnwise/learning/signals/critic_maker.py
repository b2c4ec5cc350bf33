"""The maker of the critic: a model of its own, or a head on the policy's body, as a recipe says."""

from torch import nn

from turnwise.algorithms.registry import Algorithm
from turnwise.config import Recipe, SeparateCriticConfig, ValueHeadConfig
from turnwise.learning.ranks import Ranks
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.makers import MakeSecond, SignalMaker, Words
from turnwise.learning.signals.value_head import ValueHead


class CriticMaker(SignalMaker):
    """Makes the critic."""

    def second_model(
        self,
        recipe: Recipe,
        algorithm: Algorithm,
        policy: nn.Module,
        words: Words | None,
        ranks: Ranks,
    ) -> MakeSecond | None:
        config, learning = recipe.algorithm.critic or SeparateCriticConfig(), recipe.learning
        if isinstance(config, ValueHeadConfig):
            return lambda own: ValueHead(own.model, config, learning, ranks, own.compute)
        critic = Critic(policy, config, learning, ranks)
        return lambda own: critic
