"""Rewards by the policy's own distributions: entropy and self-certainty, without any answer.

Each costs a forward pass of the episode; `turnwise_environments/rewards/unsupervised.py` has
what the engine knows.
"""

import math
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from turnwise.config import LearningConfig
from turnwise.forward.logprobs import certainties, entropies
from turnwise.learning.scoring import Measure, score_contexts, scored_by
from turnwise.rewards.parts import CERTAINTY, RewardPart
from turnwise.types import Trajectory


@dataclass(frozen=True)
class Certainty:
    """The policy's entropy and self-certainty in an episode, as parts of rewards."""

    model: Any
    """The policy as it sampled the episode: a causal model of transformers."""
    learning: LearningConfig
    temperature: float
    """The temperature of sampling; 0 means 1."""
    _busy: threading.Lock = field(default_factory=threading.Lock)

    @property
    def parts(self) -> dict[str, RewardPart]:
        functions = {"entropy": self.entropy, "self_certainty": self.self_certainty}
        return {name: replace(CERTAINTY[name], function=one) for name, one in functions.items()}

    def entropy(self, trajectory: Trajectory) -> float:
        """Mean entropy of the policy at sampled tokens, as a share of log V; 0 for none. Its
        negative is the reward of RENT (arXiv 2505.22660) and of EM-RL (arXiv 2505.15134)."""
        size = self.model.get_input_embeddings().weight.shape[0]
        # Rounding may lead beyond either end.
        return min(1.0, max(0.0, self._mean(trajectory, entropies) / math.log(size)))

    def self_certainty(self, trajectory: Trajectory) -> float:
        """Mean KL(uniform || policy) at sampled tokens, nats; 0 for none (INTUITOR, 2505.19590)."""
        return max(0.0, self._mean(trajectory, certainties))

    def _mean(self, trajectory: Trajectory, measure: Measure) -> float:
        temperature = self.temperature or 1.0
        scored = scored_by(self.model, self.learning, temperature)
        with self._busy:  # parts are measured in threads, several at once
            (found,) = score_contexts(scored, [trajectory], measure)
        known = torch.from_numpy(found).double()
        known = known[~known.isnan()]
        return float(known.mean()) if len(known) else 0.0
