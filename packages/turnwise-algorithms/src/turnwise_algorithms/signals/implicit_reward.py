"""An implicit process reward model: what each sampled token added to the chance of success.

phi is a copy of the policy as it was when the run began. A token's reward is beta log(phi /
reference), and phi learns from outcomes alone that a trajectory's sum of them is the log-odds of
its success. Source: PRIME (arXiv 2502.01456).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from turnwise.config import ImplicitRewardConfig, LearningConfig
from turnwise.forward.hidden import note_packing
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import own_micro_batches, supervised_examples
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import Optimizer, add_gradient, prepare_for_training
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.scoring import batch_logprobs, sampled_logprobs
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, graded
from turnwise.learning.signals.makers import MakeSecond, SecondParts, SignalMaker
from turnwise.learning.signals.reward_terms import Scores
from turnwise.types import Group, Trajectory


class ImplicitReward:
    """Rewards of a trajectory's sampled tokens, and their update.

    `policy` is copied, and of the copy the same parameters are trained; `copied` is a copy that is
    not divided yet. All ranks are to make the same calls.
    """

    def __init__(
        self,
        policy: nn.Module,
        reference: Scores,
        config: ImplicitRewardConfig,
        learning: LearningConfig,
        temperature: float = 1.0,
        ranks: Ranks = ALONE,
        copied: nn.Module | None = None,
    ) -> None:
        self.model = copy.deepcopy(policy) if copied is None else copied
        self.reference, self.config, self.learning = reference, config, learning
        self.temperature = temperature or 1.0
        self.device = next(policy.parameters()).device
        prepare_for_training(self.model)
        self._ranks = ranks
        self._scores = partial(batch_logprobs, slicing=ranks.slicing)
        note_packing(self.model, learning.autocast)
        # Before the optimizer is made, whose moments are those of the divided weights.
        self._compute = ranks.shard(self.model)
        self.optimizer = Optimizer(self.model, config.learning_rate, learning, ranks=ranks)

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The `token_rewards` of every graded trajectory: beta log(phi / reference) of each sampled
        token but a first one, over the whole vocabulary, 0 elsewhere."""
        members = [
            replace(member, tokens=replace(member.tokens, kept=None)) for member in graded(groups)
        ]
        given = members, self.learning, self.temperature, self._ranks, self._compute
        own = sampled_logprobs(self.model, *given, self._ranks.slicing)
        rewards = [
            np.where(np.isnan(phi), 0.0, self.config.beta * (phi - reference))
            for phi, reference in zip(own, self.reference(members), strict=True)
        ]
        return Signals(by_trajectory(members, [SignalArrays(token_rewards=row) for row in rewards]))

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        return None

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """One optimizer update on the trajectories as they were measured.

        Cross-entropy of sigma(sum_t r_t) with success or failure, the mean over graded trajectories
        in which something was sampled. Its gradient is beta (sigma - success) times that of the sum
        of log phi: the reference is not asked again. One that is not finite changes nothing.
        """
        members = [member for member in graded(groups) if member.tokens.mask[1:].any()]
        if not members:
            return {}
        rewards: list[Any] = [signals.of(member).token_rewards for member in members]
        sums = np.array([row.sum() for row in rewards])
        successes = np.array([float(m.verdict is not None and m.verdict.success) for m in members])
        loss = float(np.mean(np.logaddexp(0.0, sums) - successes * sums))  # of log-odds
        chances = 1 / (1 + np.exp(-sums))
        self._backward(members, self.config.beta * (chances - successes) / len(members))
        moved = self.optimizer.apply()
        return {
            "implicit_reward/loss": loss,
            "implicit_reward/accuracy": float(np.mean((sums > 0) == (successes > 0))),
            "implicit_reward/mean": float(sums.mean()),
            **moved.metrics("implicit_reward"),
        }

    def state(self) -> dict[str, Any]:
        """Each rank has its part."""
        return {"weights": dict(self.model.state_dict()), "optimizer": self.optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        local = self._ranks.local
        with torch.no_grad():
            for name, weight in self.model.state_dict().items():
                local(weight).copy_(local(state["weights"][name]))
        self.optimizer.load_state(state["optimizer"])

    def _backward(self, members: Sequence[Trajectory], slopes: NDArray[np.float64]) -> None:
        """Adds up the gradient of sum_i slope_i sum_t log phi."""
        examples = [
            replace(example, weight=float(slope))
            for member, slope in zip(members, slopes, strict=True)
            for example in supervised_examples(member.tokens, str(member.id))
        ]
        most = self.learning.tokens_per_micro_batch
        for _, batch in own_micro_batches(self._ranks, examples, most, self.device):
            logprobs, _ = self._compute(self._scores, batch, self.temperature, self.learning)
            add_gradient((batch.weight * logprobs).sum())


class ImplicitRewardMaker(SignalMaker):
    def second_model(self, given: SecondParts) -> MakeSecond:
        config = given.recipe.algorithm.implicit_reward or ImplicitRewardConfig()
        learning, ranks, copy = given.recipe.learning, given.ranks, given.copied()
        return lambda own: ImplicitReward(
            own.model, own.reference_logprobs, config, learning, own.temperature, ranks, copy
        )
