"""AdamW with a schedule, gradient clipping, and a guard against gradients that are not finite.

Every learner moves its weights here. Weights in bfloat16 have about three digits, and an update of
RL changes the sixth: added to them it is lost. So each has a master in float32, which is what
AdamW moves; the model's own weight is the master, rounded. Gradients are summed in float32 as well.
Ranks that have parts of a weight have its master's parts, rounded when they are put together.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.forward.attention import recomputed
from turnwise.learning.ranks import ALONE, Ranks

SAMPLE = 4096
"""Weights of one tensor, at most, that are looked at to see whether an update changed them."""

Schedule = Callable[[int], float]
"""Updates done so far -> factor of the learning rate."""


def warm_up(steps: int) -> Schedule:
    """Linear from 1/steps to 1 over the first `steps` updates, then 1."""
    # done + 1: a first update at rate 0 would change nothing.
    return lambda done: min(1.0, (done + 1) / max(steps, 1))


def warm_up_then_cosine(steps: int, total: int, floor: float = 0.1) -> Schedule:
    """Linear warm-up over `steps` updates, then half a cosine down to `floor` at `total`."""
    rise = warm_up(steps)

    def factor(done: int) -> float:
        if done < steps:
            return rise(done)
        # The last update, number total - 1, has `floor` itself.
        progress = min(1.0, (done - steps) / max(total - 1 - steps, 1))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))

    return factor


@dataclass(frozen=True)
class UpdateStats:
    """The effect of one update."""

    gradient_norm: float
    """The norm before clipping."""
    weights_changed: float
    """Share of trained weights, in float32, that changed, by up to SAMPLE of each tensor."""
    weights_changed_rounded: float | None
    """That share in the model's own type; None for float32, which rounds nothing."""

    @property
    def skipped(self) -> bool:
        """Whether the gradient was not finite, so that nothing moved."""
        return not math.isfinite(self.gradient_norm)

    def metrics(self, learner: str) -> dict[str, float]:
        """The metrics under a learner's name, as `sft/gradient_norm`."""
        told = {
            "gradient_norm": self.gradient_norm,
            "weights_changed": self.weights_changed,
            "weights_changed_rounded": self.weights_changed_rounded,
            "skipped_updates": float(self.skipped),
        }
        return {f"{learner}/{name}": value for name, value in told.items() if value is not None}


class Optimizer:
    """The trainable parameters of a model and how they move.

    Weight decay leaves out parameters of fewer than two dimensions (norms, biases). Raises
    ConfigError for a model in which nothing is to be trained.

    Args:
        config: betas, weight decay, gradient clipping, and warm-up where no schedule is given.
        ranks: hold the parameters together; each moves its part.
    """

    def __init__(
        self,
        model: nn.Module,
        learning_rate: float,
        config: LearningConfig,
        schedule: Schedule | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names, self.parameters = list(trained), list(trained.values())
        if not self.parameters:
            raise ConfigError(f"{type(model).__name__} has no weight to train: all are frozen")
        self._ranks = ranks
        self._locals = [ranks.local(parameter) for parameter in self.parameters]
        offload = config.offload_optimizer
        self._masters = [_master(local, offload) for local in self._locals]
        self.learning_rate = learning_rate
        self.schedule = schedule or warm_up(config.warmup_steps)
        self.max_gradient_norm = config.max_gradient_norm
        self.updates = 0
        self.learning_rate_factor = 1.0
        """A factor on the schedule's rate, lowered by reactions while the run goes on."""
        matrices = [p for p in self._masters if p.dim() >= 2]
        vectors = [p for p in self._masters if p.dim() < 2]
        groups = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(groups, lr=learning_rate, betas=config.betas, fused=True)

    @property
    def present_learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self.learning_rate * self.learning_rate_factor * self.schedule(self.updates)

    def apply(self) -> UpdateStats:
        """Clip the accumulated gradient, move the weights, clear the gradient. With a norm that is
        not finite, weights and state stay exactly as they were."""
        # First, since masters in another memory get copies of the gradients.
        self._ranks.sum_gradients(gradients_of(self.parameters))
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                master.grad = self._ranks.local(parameter.grad).to(master.device)
        norm = self._clip()
        before = self._samples()
        # The norm is the same on all ranks: they move together or not at all.
        if math.isfinite(norm):
            self._step()
        self.clear()
        changed, rounded = map(self._share_changed, before, self._samples())
        any_rounded = any(map(self._is_rounded, self.parameters, self._masters))
        return UpdateStats(norm, changed, rounded if any_rounded else None)

    def clear(self) -> None:
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            parameter.grad = master.grad = None

    def state(self) -> dict[str, Any]:
        """Moments and masters by weights' names, divided as these, in the optimizer's memory."""
        divided = self._ranks.divided
        moments: dict[str, dict[str, Tensor]] = {}
        masters: dict[str, Tensor] = {}
        weights = zip(self._names, self.parameters, self._masters, strict=True)
        for name, weight, master in weights:
            moments[name] = {
                kind: divided(value, weight) if value.dim() else value
                for kind, value in self._moments(master).items()
            }
            if self._is_rounded(weight, master):
                masters[name] = divided(master, weight)
        return {
            "moments": moments,
            "masters": masters,
            "updates": self.updates,
            "learning_rate_factor": self.learning_rate_factor,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken, for a model with the same parameters."""
        local = self._ranks.local
        with torch.no_grad():
            for name, own, master in zip(self._names, self._locals, self._masters, strict=True):
                for kind, value in self._moments(master).items():
                    value.copy_(local(state["moments"][name][kind]))
                # A weight without a saved master is its own, and came with the model.
                master.copy_(local(state["masters"][name]) if name in state["masters"] else own)
            self._round()
        self.updates = int(state["updates"])
        self.learning_rate_factor = float(state["learning_rate_factor"])

    def _clip(self) -> float:
        """Scale down a gradient that is too long; returns its norm before, over all ranks."""
        utils, masters = torch.nn.utils, self._masters
        pairs = zip(self.parameters, masters, strict=True)
        counted = [master.grad for one, master in pairs if self._ranks.counts(one)]
        own = utils.get_total_norm([gradient for gradient in counted if gradient is not None])
        # Norms of parts add up as squares. Each rank scales its part by the norm of the whole.
        norm = math.hypot(*self._ranks.gather(float(own)))
        utils.clip_grads_with_norm_(masters, self.max_gradient_norm, torch.full_like(own, norm))
        return norm

    def _moments(self, master: Tensor) -> dict[str, Tensor]:
        """AdamW's numbers of a weight; as it makes them itself where no update has needed them."""
        moments: dict[str, Tensor] = self._adamw.state[master]
        if not moments:
            moments["step"] = torch.zeros((), device=master.device)
            moments["exp_avg"] = torch.zeros_like(master)
            moments["exp_avg_sq"] = torch.zeros_like(master)
        return moments

    def _step(self) -> None:
        for group in self._adamw.param_groups:
            group["lr"] = self.present_learning_rate
        self._adamw.step()
        with torch.no_grad():
            self._round()
        self.updates += 1

    def _round(self) -> None:
        """Write masters into the weights that they stand beside."""
        for local, master in zip(self._locals, self._masters, strict=True):
            if local is not master:
                local.copy_(master)

    def _samples(self) -> tuple[list[Tensor], list[Tensor]]:
        masters = [_sample(master) for master in self._masters]
        types = map(self._ranks.dtype, self.parameters)
        return masters, [master.to(own) for master, own in zip(masters, types, strict=True)]

    def _share_changed(self, before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
        device = before[0].device
        changed = [
            # A sampled weight stands for as many as lie between two of them.
            (new != old).sum().to(device) * (local.numel() / max(1, len(old)))
            for new, old, local, parameter in zip(
                after, before, self._locals, self.parameters, strict=True
            )
            if self._ranks.counts(parameter)
        ]
        total = sum(parameter.numel() for parameter in self.parameters)
        own = float(torch.stack(changed).sum()) if changed else 0.0
        return sum(self._ranks.gather(own)) / max(1, total)

    def _is_rounded(self, parameter: Tensor, master: Tensor) -> bool:
        """Whether the model computes with fewer bits than the master has."""
        return self._ranks.dtype(parameter) != master.dtype


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of a model that are not frozen, in its order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def gradients_of(weights: Iterable[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]


def add_gradient(loss: Tensor) -> None:
    """Add a loss's gradient; nothing where no trained weight has a part in it, which the run
    reports by a `gradient_norm` of 0 (`monitor/no_signal.py`)."""
    if loss.requires_grad:
        torch.autograd.backward(loss)


def _master(parameter: Tensor, offload: bool) -> Tensor:
    """The parameter, or where it has fewer bits than float32, or with `offload`, a copy; gradients
    are in float32 too."""
    if torch.finfo(parameter.dtype).bits < 32:
        parameter.grad_dtype = torch.float32
    elif not offload:
        return parameter
    device = torch.device("cpu") if offload else parameter.device
    return parameter.detach().to(device, torch.float32, copy=True)


def _sample(parameter: Tensor) -> Tensor:
    """Up to SAMPLE weights at equal, odd distances: even ones would be of few columns."""
    return parameter.detach().flatten()[:: math.ceil(parameter.numel() / SAMPLE) | 1].clone()


def prepare_for_training(model: nn.Module) -> None:
    """No dropout, ever: the policy that is updated must be the policy that sampled. Layers that
    recompute activations do so only in training mode, so they alone get it."""
    model.eval()
    for module in recomputed(model):
        module.training = True
