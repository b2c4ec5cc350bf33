"""A critic that is a head on the policy's own body, one number beside the logits; and the maker of
it, or of the separate critic.

The head is trained like the separate critic, by an optimizer of its own, on what the body says when
the policy has been updated. Beside each policy update the gradient of the value loss reaches the
body as well (`body_coefficient`), but not in training the critic alone: it would move the policy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnwise.config import LearningConfig, SeparateCriticConfig, ValueHeadConfig
from turnwise.forward.hidden import base_model, decoder_of
from turnwise.forward.packing import Row
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import add_gradient
from turnwise.learning.ranks import ALONE, Compute, Ranks
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.critic import Critic, target_count, value_lessons, values_of
from turnwise.learning.signals.makers import MakeSecond, SecondParts, SignalMaker
from turnwise.types import Group, Trajectory


class ValueHead(Critic):
    """A critic with weights and optimizer of its head alone, in float32 whatever the body's type.

    Args:
        policy: as for `Critic`; its body is shared, adapters of peft included, and saved with it.
        compute: computes with the policy, divided among ranks, all of which have the whole head.
    """

    config: ValueHeadConfig

    def __init__(
        self,
        policy: nn.Module,
        config: ValueHeadConfig,
        learning: LearningConfig,
        ranks: Ranks = ALONE,
        compute: Compute | None = None,
    ) -> None:
        self._compute_policy = compute or ALONE.shard(policy)
        super().__init__(policy, config, learning, ranks)

    def _share(self, policy: nn.Module) -> None:
        body = decoder_of(base_model(policy))
        object.__setattr__(self, "body", body)  # not registered: it is no part of this module

    def _divide(self) -> Compute:
        return lambda function, *arguments: function(self, *arguments)

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        return ValueLoss(self, signals)

    def add_body_gradient(self, groups: Sequence[Group], signals: Signals, credits: Credits) -> str:
        """Add body_coefficient times the gradient of the value loss to the body's, the mean over
        all tokens with a target; the head gets none. Returns the problem, if any."""
        lessons = value_lessons(groups, signals, credits)
        count = target_count(lessons)
        if not self.config.body_coefficient or not count:
            return ""
        problem = ""
        weight, bias = self.head.weight.detach(), self.head.bias.detach()
        head = partial(functional.linear, weight=weight, bias=bias)
        for batch, counts in self._batches(lessons):
            values = values_of(head, *self._read([lesson.member for lesson in batch]))
            losses = self._losses(values, batch)
            loss = self.config.body_coefficient * losses.sum() * counts / count
            if not math.isfinite(loss.item()):
                problem = f"the value loss is {loss.item()}"
            add_gradient(loss)
        return problem

    def _hidden(self, members: Sequence[Trajectory]) -> tuple[Tensor, Row | None]:
        """Without a gradient: here the head alone is trained."""
        with torch.no_grad():
            return self._read(members)

    def _read(self, members: Sequence[Trajectory]) -> tuple[Tensor, Row | None]:
        # The argument is the policy, whose body is this one's: so its weights are gathered.
        found: tuple[Tensor, Row | None] = self._compute_policy(
            lambda _: Critic._hidden(self, members)
        )
        return found


@dataclass(frozen=True)
class ValueLoss:
    """The value loss of one step on the policy's body, beside the policy's updates."""

    head: ValueHead
    signals: Signals

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        """False: a policy that learns nothing from the groups is not moved for the values' sake."""
        return False

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        return self.head.add_body_gradient(groups, self.signals, credits)


class CriticMaker(SignalMaker):
    def second_model(self, given: SecondParts) -> MakeSecond | None:
        learning, ranks = given.recipe.learning, given.ranks
        config = given.recipe.algorithm.critic or SeparateCriticConfig()
        if isinstance(config, ValueHeadConfig):
            return lambda own: ValueHead(own.model, config, learning, ranks, own.compute)
        critic = Critic(given.policy, config, learning, ranks)
        return lambda own: critic
