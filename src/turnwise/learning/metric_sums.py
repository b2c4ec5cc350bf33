"""Measurements of a policy update, summed over micro-batches and updates, then divided once; and
how much of its gradient is noise: how far the gradients of its groups are apart.

A mean over tokens is the sum over all tokens by the number of all tokens: never a mean of means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from turnwise.algorithms.losses import TokenLosses
from turnwise.forward.routing import Replay
from turnwise.learning.batch import Example
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.signals.base import NUMBERS, TokenNumbers


class GradientNoise:
    """Watches gradients add up, group after group. Holds one more copy of them.

    An update's gradient is the sum of those of n groups, whose tasks and trajectories are drawn
    independently. With S = sum_i |g_i|^2 and g = sum_i g_i, the trace of the covariance of g is
    estimated without bias by (S - |g|^2 / n) n / (n - 1), and the square of its expectation by
    |g|^2 less that. Each of several ranks holds its part of the gradients; all make the same calls.
    """

    def __init__(self, parameters: Sequence[Tensor], ranks: Ranks = ALONE) -> None:
        self._parameters, self._ranks = parameters, ranks
        self._before: list[Tensor] | None = None
        self._squares = 0.0

    def add(self) -> None:
        """Count what was added to the gradients since the last call as one group's."""
        # A copy, as `grad` adds up in place; zeros for none, as of an expert that no token chose.
        now = [
            (torch.zeros_like(one) if one.grad is None else one.grad).detach().float().clone()
            for one in self._parameters
        ]
        before = self._before or [torch.zeros_like(tensor) for tensor in now]
        self._squares += self._square([new - old for new, old in zip(now, before, strict=True)])
        self._before = now

    def metrics(self, groups: int) -> dict[str, float]:
        """The variance of the gradient, and the square of what is signal in it, which may come out
        negative; nothing for fewer than 2 groups. One never added had a gradient of 0."""
        if groups < 2 or self._before is None:
            return {}
        total = self._square(self._before)
        variance = (self._squares - total / groups) * groups / (groups - 1)
        return {"policy/gradient_variance": variance, "policy/gradient_signal": total - variance}

    def _square(self, gradients: Sequence[Tensor]) -> float:
        """The squared length of a gradient that ranks have parts of, added up in place."""
        ranks = self._ranks
        ranks.sum_gradients(gradients)
        own = [ranks.local(one).square().sum() for one in gradients if ranks.counts(one)]
        return float(sum(ranks.gather(float(sum(map(float, own))))))


@dataclass
class MetricSums:
    """Sums and counts of one or more updates."""

    updates: int = 0
    tokens: int = 0
    loss: float = 0.0
    """Sum over updates."""
    gradient_norm: float = 0.0
    """Sum over updates, before clipping."""
    weights_changed: float = 0.0
    """Sum over updates of the share of weights that each one changed."""
    weights_changed_rounded: float | None = None
    """Sum over updates of that share in the model's own type, where that is not float32."""
    sums: dict[str, float] = field(default_factory=dict)
    """Over trained tokens."""
    maxima: dict[str, float] = field(default_factory=dict)
    minima: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0
    """Sum over sampled tokens of |trainer's - engine's log-probability|, before any update."""
    gap_tokens: int = 0
    replayed: int = 0
    """Tokens whose experts were replayed, before any update."""
    routing_changed: int = 0
    """How many of them the learner's own routers would have sent elsewhere."""
    auxiliary_losses: dict[str, float] = field(default_factory=dict)
    """Cross-entropy of each term, summed over its tokens."""
    auxiliary_tokens: dict[str, int] = field(default_factory=dict)

    def add_losses(self, result: TokenLosses, tokens: int, loss: float) -> None:
        self.tokens += tokens
        self.loss += loss
        self._merge(result.sums, result.maxima, result.minima)

    def add_gap(self, difference: Tensor) -> None:
        """Count the differences of log-probability of sampled tokens, float32[n]."""
        self.gap += difference.detach().abs().sum().item()
        self.gap_tokens += len(difference)

    def add_routing(self, replay: Replay) -> None:
        self.replayed += replay.tokens
        self.routing_changed += replay.changed

    def add_auxiliary(self, term: str, loss: float, tokens: int) -> None:
        self.auxiliary_losses[term] = self.auxiliary_losses.get(term, 0.0) + loss
        self.auxiliary_tokens[term] = self.auxiliary_tokens.get(term, 0) + tokens

    @classmethod
    def of_update(cls, parts: Iterable["MetricSums"]) -> "MetricSums":
        """Sum up one update, of which each rank has measured a part."""
        found = cls()
        for part in parts:
            found.add(part)
        found.updates = 1
        return found

    def add(self, other: "MetricSums") -> None:
        for name, value in vars(other).items():
            if isinstance(value, int | float):  # weights_changed_rounded may be None
                setattr(self, name, (getattr(self, name) or 0) + value)
        self._merge(other.sums, other.maxima, other.minima)
        for term, tokens in other.auxiliary_tokens.items():
            self.add_auxiliary(term, other.auxiliary_losses[term], tokens)

    def metrics(self) -> dict[str, float]:
        """Means over tokens and updates; what was never measured is absent."""
        metrics = {
            "policy/updates": float(self.updates),
            "policy/trained_tokens": float(self.tokens),
        }
        if self.tokens:
            metrics["policy/loss"] = self.loss / self.updates
        if self.updates:
            metrics["policy/gradient_norm"] = self.gradient_norm / self.updates
            metrics["policy/weights_changed"] = self.weights_changed / self.updates
        if self.updates and self.weights_changed_rounded is not None:
            metrics["policy/weights_changed_rounded"] = self.weights_changed_rounded / self.updates
        if self.gap_tokens:
            metrics["policy/logprob_gap"] = self.gap / self.gap_tokens
        if self.replayed:
            metrics["policy/routing_changed"] = self.routing_changed / self.replayed
        for term, tokens in self.auxiliary_tokens.items():
            metrics[f"auxiliary/{term}_loss"] = self.auxiliary_losses[term] / tokens
            metrics[f"auxiliary/{term}_tokens"] = float(tokens)
        means = {name: value / self.tokens for name, value in self.sums.items()}
        return {**metrics, **means, **self.maxima, **self.minima}

    def _merge(
        self, sums: dict[str, float], maxima: dict[str, float], minima: dict[str, float]
    ) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in maxima.items():
            self.maxima[name] = max(self.maxima.get(name, value), value)
        for name, value in minima.items():
            self.minima[name] = min(self.minima.get(name, value), value)


@dataclass(frozen=True)
class UpdateMetrics:
    gap: bool
    """Whether the weights are still those that sampled: then the gap to the engine is measured."""
    tokens: TokenNumbers | None
    """Filled in the first pass over a step's trajectories; None later."""
    noise: GradientNoise | None

    def see(self, members: Sequence[Example], *numbers: Tensor) -> None:
        """Keep the members' trained tokens' numbers, float32[N] each, in the order of `NUMBERS`."""
        if self.tokens is None:
            return
        counts = [int(member.trained.sum()) for member in members]
        seen = torch.stack([each.detach() for each in numbers]).cpu()
        for member, own in zip(members, torch.split(seen, counts, dim=1), strict=True):
            assert member.trajectory is not None  # made by `policy_examples`
            places = member.start + np.flatnonzero(member.trained)
            for name, values in zip(NUMBERS.names or (), own.numpy(), strict=True):
                self.tokens[member.trajectory][name][places] = values
