"""The critic: what is to be expected from here on, for every token that the policy samples.

It is a model of its own: a copy of the policy's body, as it was when the run began, with one number
in place of the vocabulary. Not here: a critic on the policy's own body (`value_head`), and what is
made of values (`algorithms/values.py`).
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.algorithms.values import explained_variance
from turnwise.config import CriticConfig, LearningConfig
from turnwise.learning.batch import shifted
from turnwise.learning.hidden import base_model, decoder_of, inputs_of
from turnwise.learning.optimizer import (
    Moved,
    Optimizer,
    add_gradient,
    prepare_for_training,
    warm_up,
)
from turnwise.learning.selection import shares
from turnwise.types import Group, Trajectory


class Critic(nn.Module):
    """Values of a trajectory's sampled tokens, and their update.

    Args:
        policy: a causal model of transformers; its body is copied and all of it is trained.
        config: learning rate and clip.
        learning: micro-batches, autocast, gradient clipping, betas, weight decay.
    """

    policy: Any

    def __init__(self, policy: nn.Module, config: CriticConfig, learning: LearningConfig) -> None:
        super().__init__()
        self._share(policy)
        object.__setattr__(self, "policy", base_model(policy))  # no part of it: it has the reader
        width = base_model(policy).get_input_embeddings().weight.shape[1]
        device = next(policy.parameters()).device
        self.head = nn.Linear(width, 1, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.config, self.learning, self.device = config, learning, device
        prepare_for_training(self)
        self.optimizer = Optimizer(
            self,
            config.learning_rate,
            warm_up(learning.warmup_steps),
            learning.betas,
            learning.weight_decay,
            learning.max_gradient_norm,
        )

    def _share(self, policy: nn.Module) -> None:
        """Take what the critic needs of the policy."""
        self.body = copy.deepcopy(decoder_of(base_model(policy))).requires_grad_(True)

    def assess(self, groups: Sequence[Group]) -> None:
        """Set `values` of every graded trajectory: float32[n], NaN where nothing was sampled."""
        for members in self._micro_batches(graded(groups)):
            with torch.no_grad():
                values = self._values(members).cpu().numpy()
            place = 0
            for member in members:
                wanted = _wanted(member)
                count = int(wanted.sum())
                member.values = np.full(len(member.tokens), np.nan, np.float32)
                member.values[wanted] = values[place : place + count]
                place += count

    def update(self, groups: Sequence[Group]) -> dict[str, float]:
        """`updates_per_step` optimizer updates towards `value_targets`, each on an equal share of
        the groups, and the mean over all of its tokens that have a target.

        Loss 0.5 max((V - T)^2, (clip(V, V_old - c, V_old + c) - T)^2) (PPO's implementation,
        arXiv 1707.06347); V_old is of before the first update, so the clip acts from the second one
        on. A loss or gradient that is not finite changes nothing. Metrics of several updates are
        their means, and absent where no update is made.
        """
        parts = shares(groups, self.learning.updates_per_step)
        batches = [[m for m in graded(part) if m.value_targets is not None] for part in parts]
        made = [self._update_once(batch) for batch in batches if target_count(batch)]
        if not made:
            return {}
        members = [member for batch in batches for member in batch]
        targets = np.concatenate([_at_targets(m, m.value_targets) for m in members])
        before = np.concatenate([_at_targets(member, member.values) for member in members])
        variance = explained_variance(before, targets)
        return {
            **{name: fmean(metrics[name] for metrics in made) for name in made[0]},
            "critic/skipped_updates": sum(metrics["critic/skipped_updates"] for metrics in made),
            "critic/value_mean": float(before.mean()),
            "critic/target_mean": float(targets.mean()),
        } | ({"critic/explained_variance": variance} if math.isfinite(variance) else {})

    def _update_once(self, members: Sequence[Trajectory]) -> dict[str, float]:
        """One optimizer update, on trajectories with targets."""
        count = target_count(members)
        loss = sum(self._backward(batch, count) for batch in self._micro_batches(members))
        if math.isfinite(loss):
            moved = self.optimizer.apply()
        else:
            self.optimizer.clear()
            moved = Moved(math.nan, 0.0, None)
        return {"critic/loss": loss, **moved.metrics("critic")}

    def state(self) -> dict[str, Any]:
        """Weights and optimizer state."""
        return {"weights": self.state_dict(), "optimizer": self.optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self.load_state_dict(state["weights"])
        self.optimizer.load_state(state["optimizer"])

    def _backward(self, members: Sequence[Trajectory], count: int) -> float:
        loss = self._losses(self._values(members), members).sum() / count
        add_gradient(loss)
        return float(loss.detach())

    def _losses(self, values: Tensor, members: Sequence[Trajectory]) -> Tensor:
        """float32[M], of the tokens that have a target; `values` as `_values` gives them."""
        targets = self._flat(members, [member.value_targets for member in members])
        old = self._flat(members, [member.values for member in members])
        trained = ~torch.isnan(targets)
        values, targets, old = values[trained], targets[trained], old[trained]
        clipped = old + (values - old).clamp(-self.config.clip, self.config.clip)
        return 0.5 * torch.maximum((values - targets) ** 2, (clipped - targets) ** 2)

    def _values(self, members: Sequence[Trajectory]) -> Tensor:
        """float32[N]: in the order of the members, of each sampled token but a first one."""
        values: Tensor = self.head(self._hidden(members).float())[:, 0]
        return values

    def _hidden(self, members: Sequence[Trajectory]) -> Tensor:
        """[N, width]: what the body says before each of those tokens."""
        inputs, selected = shifted(
            [(m.tokens.ids[span], _wanted(m)[span]) for m in members for span in m.tokens.spans]
        )
        autocast = self.learning.autocast
        ids = inputs.to(self.device)
        spans = [(member.tokens, span) for member in members for span in member.tokens.spans]
        pictures = [own.pictures_in(span, span.stop - span.start - 1) for own, span in spans]
        given = inputs_of(self.policy, self.body, ids, pictures) or {"input_ids": ids}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast):
            hidden = self.body(use_cache=False, **given).last_hidden_state
        chosen: Tensor = hidden[selected.to(self.device)]
        return chosen

    def _flat(self, members: Sequence[Trajectory], arrays: Sequence[Any]) -> Tensor:
        pieces = [array[_wanted(m)] for m, array in zip(members, arrays, strict=True)]
        return torch.from_numpy(np.concatenate(pieces)).to(self.device)

    def _micro_batches(self, members: Sequence[Trajectory]) -> Iterator[list[Trajectory]]:
        """By their longest contexts, of at most `tokens_per_micro_batch` padded tokens; a context
        is a row, and a trajectory of more than that is alone."""
        current: list[Trajectory] = []
        rows = 0
        for member in sorted(members, key=_longest):
            more = rows + len(member.tokens.spans)
            if current and more * _longest(member) > self.learning.tokens_per_micro_batch:
                yield current
                current, more = [], len(member.tokens.spans)
            current.append(member)
            rows = more
        if current:
            yield current


def graded(groups: Sequence[Group]) -> list[Trajectory]:
    """Graded trajectories in which something was sampled after a first token."""
    return [m for group in groups for m in group.graded if _wanted(m).any()]


def target_count(members: Sequence[Trajectory]) -> int:
    """How many tokens of the trajectories the critic is trained at."""
    return sum(len(_at_targets(member, member.value_targets)) for member in members)


def _longest(member: Trajectory) -> int:
    """Tokens of the longest context."""
    return max(int(span.stop - span.start) for span in member.tokens.spans)


def _wanted(member: Trajectory) -> np.ndarray:
    """Sampled tokens that something stands before, in their context."""
    wanted = member.tokens.mask.copy()
    wanted[[span.start for span in member.tokens.spans if span.start < len(wanted)]] = False
    return wanted


def _at_targets(member: Trajectory, numbers: Any) -> np.ndarray:
    targets: Any = member.value_targets
    chosen: np.ndarray = numbers[~np.isnan(targets) & _wanted(member)]
    return chosen.astype(np.float64)
