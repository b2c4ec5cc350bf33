"""A critic that is a head on the policy's own body: no second model, one number beside the logits.

The head is trained like the separate critic, by an optimizer of its own, on what the body says when
the policy has been updated. Beside each policy update the gradient of the value loss reaches the
body as well, times `body_coefficient`; while the critic is trained alone it does not, since
that would move the policy. Not here: a critic with a body of its own (`critic`), and what is made
of values (`algorithms/values.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnwise.config import CriticConfig, LearningConfig, ValueHeadConfig
from turnwise.forward.hidden import base_model, decoder_of
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import add_gradient
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.critic import Critic, target_count, value_lessons
from turnwise.types import Group, Trajectory


class ValueHead(Critic):
    """A critic with weights and optimizer of its head alone, in float32 whatever the body's type.

    Args:
        policy: as for `Critic`; its body is shared, adapters of peft included, and saved with it.
    """

    config: ValueHeadConfig

    def _share(self, policy: nn.Module) -> None:
        body = decoder_of(base_model(policy))
        object.__setattr__(self, "body", body)  # not registered: it is no part of this module

    def add_body_gradient(self, groups: Sequence[Group], signals: Signals, credits: Credits) -> str:
        """Adds the gradient of body_coefficient times the value loss to the body's, the mean over
        all tokens of the groups with a target; the head gets none. Returns the problem, if any."""
        lessons = value_lessons(groups, signals, credits)
        count = target_count(lessons)
        if not self.config.body_coefficient or not count:
            return ""
        head = self.head.weight.detach(), self.head.bias.detach()
        for batch, _ in self._batches(lessons):
            hidden = super()._hidden([lesson.member for lesson in batch])
            values = functional.linear(hidden.float(), *head)[:, 0]
            loss = self.config.body_coefficient * self._losses(values, batch).sum() / count
            if not math.isfinite(loss.item()):
                return f"the value loss is {loss.item()}"
            add_gradient(loss)
        return ""

    def _hidden(self, members: Sequence[Trajectory]) -> Tensor:
        """Computes hidden states without a gradient: here the head alone is trained."""
        with torch.no_grad():
            return super()._hidden(members)


@dataclass(frozen=True)
class ValueLoss:
    """The value loss of one step on the policy's body, beside the policy's updates."""

    head: ValueHead
    signals: Signals

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        """False: a policy that learns nothing from the groups is not moved for the values' sake."""
        return False

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        """Adds the gradient of the value loss on the groups to the body's; returns the problem, if
        any."""
        return self.head.add_body_gradient(groups, self.signals, credits)


def make_critic(
    policy: nn.Module, config: CriticConfig, learning: LearningConfig, ranks: Ranks = ALONE
) -> Critic:
    """The critic that a recipe asks for."""
    if isinstance(config, ValueHeadConfig):
        return ValueHead(policy, config, learning)
    return Critic(policy, config, learning, ranks)
