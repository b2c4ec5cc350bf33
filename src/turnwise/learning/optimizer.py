"""AdamW with a schedule, gradient clipping, and a guard against gradients that are not finite."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

Schedule = Callable[[int], float]
"""Updates done so far -> factor of the learning rate."""


def warm_up(steps: int) -> Schedule:
    """Linear from 1/steps to 1 over the first `steps` updates, then 1."""
    return lambda done: min(1.0, (done + 1) / max(steps, 1))


def warm_up_then_cosine(steps: int, total: int, floor: float = 0.1) -> Schedule:
    """Linear warm-up over `steps` updates, then half a cosine down to `floor` at `total`."""
    rise = warm_up(steps)

    def factor(done: int) -> float:
        if done < steps:
            return rise(done)
        progress = min(1.0, (done - steps) / max(total - 1 - steps, 1))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))

    return factor


class Optimizer:
    """The trainable parameters of a model and how they move.

    Weight decay leaves out parameters of fewer than two dimensions (norms, biases).
    """

    def __init__(
        self,
        model: nn.Module,
        learning_rate: float,
        schedule: Schedule,
        betas: tuple[float, float],
        weight_decay: float,
        max_gradient_norm: float,
    ) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.max_gradient_norm = max_gradient_norm
        self.updates = 0
        self.learning_rate_factor = 1.0
        """On top of the schedule: what has been lowered while the run went on."""
        matrices = [p for p in self.parameters if p.dim() >= 2]
        vectors = [p for p in self.parameters if p.dim() < 2]
        groups = [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)

    @property
    def present_learning_rate(self) -> float:
        """Of the next update."""
        return self.learning_rate * self.learning_rate_factor * self.schedule(self.updates)

    def apply(self) -> float:
        """Clip the accumulated gradient, move the weights, clear the gradient.

        Returns the gradient's norm before clipping. When that is not finite, weights and state
        stay exactly as they were.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.max_gradient_norm))
        if math.isfinite(norm):
            for group in self._adamw.param_groups:
                group["lr"] = self.present_learning_rate
            self._adamw.step()
            self.updates += 1
        self.clear()
        return norm

    def clear(self) -> None:
        """Forget the accumulated gradient."""
        self._adamw.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs, for `torch.save`; shares memory with the optimizer."""
        return {
            "adamw": self._adamw.state_dict(),
            "updates": self.updates,
            "learning_rate_factor": self.learning_rate_factor,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken, for a model with the same parameters."""
        self._adamw.load_state_dict(state["adamw"])
        self.updates = int(state["updates"])
        self.learning_rate_factor = float(state["learning_rate_factor"])


def prepare_for_training(model: nn.Module) -> None:
    """No dropout, ever: the policy that is updated must be the policy that sampled.

    Layers that recompute their activations do so only in training mode, so they alone get it.
    """
    model.eval()
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True
