"""The critic: what is to be expected from here on, for every token that the policy samples.

Either a model of its own, a copy of the policy's body with one number in place of the vocabulary,
or a head on the policy's own body (`value_head.py`).
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from turnwise.algorithms.values import explained_variance
from turnwise.config import CriticConfig, LearningConfig
from turnwise.forward.hidden import base_model, decoder_of, inputs_of, offloaded
from turnwise.forward.packing import Row
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import shifted
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import Optimizer, UpdateStats, add_gradient, prepare_for_training
from turnwise.learning.ranks import ALONE, Compute, Ranks, is_leader, own_batches
from turnwise.learning.selection import shares
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, graded
from turnwise.models.copies import copy_to_divide
from turnwise.types import Group, Trajectory


class ValueLesson(NamedTuple):
    """A trajectory of n tokens that a critic learns from."""

    member: Trajectory
    values: NDArray[np.float32]
    """float32[n], of before the step's updates."""
    targets: NDArray[np.float32]
    """float32[n], NaN where the critic is not trained."""

    def at_targets(self, numbers: NDArray[np.float32]) -> NDArray[np.float64]:
        """The numbers of the tokens that have a target."""
        chosen: NDArray[np.float32] = numbers[~np.isnan(self.targets) & _wanted(self.member)]
        return chosen.astype(np.float64)


class Critic(nn.Module):
    """Values of a trajectory's sampled tokens, and their update.

    Args:
        policy: a causal model of transformers; its body is copied and all of it is trained.
        config: learning rate and clip.
        learning: micro-batches, autocast, gradient clipping, betas, weight decay.
        ranks: learn together, each from a part of the trajectories; all are to make the same calls.
    """

    policy: Any
    temperature = 1.0
    """It scores no tokens, so that of sampling changes nothing."""

    def __init__(
        self,
        policy: nn.Module,
        config: CriticConfig,
        learning: LearningConfig,
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__()
        self._ranks = ranks
        self._share(policy)
        object.__setattr__(self, "policy", base_model(policy))  # unregistered: it has the reader
        width = base_model(policy).get_input_embeddings().weight.shape[1]
        device = next(policy.parameters()).device
        self.head = nn.Linear(width, 1, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.config, self.learning, self.device = config, learning, device
        prepare_for_training(self)
        self._compute = self._divide()
        self.optimizer = Optimizer(self, config.learning_rate, learning, ranks=ranks)

    def _share(self, policy: nn.Module) -> None:
        """Take what the critic needs of the policy."""
        body = decoder_of(base_model(policy))
        # To be divided it may share memory: ranks put parts of their own in place of weights.
        copied = copy.deepcopy(body) if self._ranks.count == 1 else copy_to_divide(body)
        self.body = copied.requires_grad_(True)

    def _divide(self) -> Compute:
        """Leave this rank its part; returns how to compute with the critic from then on."""
        return self._ranks.shard(self)

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The `values` of every graded trajectory: float32[n], NaN where nothing was sampled and at
        a context's first token."""
        members = graded(groups)
        found = [np.full(len(member.tokens), np.nan, np.float32) for member in members]
        for part in self._ranks.gather(self._measured(members)):
            for place, own in part:
                found[place][_wanted(members[place])] = own
        return Signals(by_trajectory(members, [SignalArrays(values=own) for own in found]))

    def _measured(self, members: Sequence[Trajectory]) -> list[tuple[int, NDArray[np.float32]]]:
        """The values of this rank's members, with the place of each."""
        found = []
        for places, counts in self._micro_batches(members):
            with torch.no_grad():
                values = self._values([members[place] for place in places]).cpu().numpy()
            ends = np.cumsum([_wanted(members[place]).sum() for place in places])[:-1]
            if counts and is_leader(self._ranks):
                found += list(zip(places, np.split(values, ends), strict=True))
        return found

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        return None

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Make `updates_per_step` updates in each of `epochs` passes towards the credits' value
        targets, each on an equal share of the groups, by the mean over its tokens with a target.

        Loss 0.5 max((V - T)^2, (clip(V, V_old - c, V_old + c) - T)^2) (PPO's implementation, arXiv
        1707.06347); V_old is of before the first update, so the clip acts from the second one on. A
        loss or gradient that is not finite changes nothing. Metrics are means of updates, if any.
        """
        parts = shares(groups, self.learning.updates_per_step)
        batches = [value_lessons(part, signals, credits) for part in parts]
        taught = [batch for batch in batches if target_count(batch)]
        made = [self._update_once(batch) for batch in taught * self.learning.epochs]
        if not made:
            return {}
        lessons = [lesson for batch in batches for lesson in batch]
        targets = np.concatenate([lesson.at_targets(lesson.targets) for lesson in lessons])
        before = np.concatenate([lesson.at_targets(lesson.values) for lesson in lessons])
        variance = explained_variance(before, targets)
        return {
            **{name: fmean(metrics[name] for metrics in made) for name in made[0]},
            "critic/skipped_updates": sum(metrics["critic/skipped_updates"] for metrics in made),
            "critic/value_mean": float(before.mean()),
            "critic/target_mean": float(targets.mean()),
        } | ({"critic/explained_variance": variance} if math.isfinite(variance) else {})

    def _update_once(self, lessons: Sequence[ValueLesson]) -> dict[str, float]:
        """One optimizer update, on lessons with targets."""
        count = target_count(lessons)
        own = [self._backward(batch, count, counts) for batch, counts in self._batches(lessons)]
        loss = sum(self._ranks.gather(sum(own)))
        # The same number on all ranks, so that all of them move, or none does.
        if math.isfinite(loss):
            moved = self.optimizer.apply()
        else:
            self.optimizer.clear()
            moved = UpdateStats(math.nan, 0.0, None)
        return {"critic/loss": loss, **moved.metrics("critic")}

    def state(self) -> dict[str, Any]:
        return {"weights": dict(self.state_dict()), "optimizer": self.optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in self.state_dict().items():
                self._ranks.local(weight).copy_(self._ranks.local(state["weights"][name]))
        self.optimizer.load_state(state["optimizer"])

    def _backward(self, lessons: Sequence[ValueLesson], count: int, counts: bool) -> float:
        values = self._values([lesson.member for lesson in lessons])
        loss = self._losses(values, lessons).sum() * counts / count  # 0 where it only fills up
        add_gradient(loss)
        return float(loss.detach()) * is_leader(self._ranks)

    def _losses(self, values: Tensor, lessons: Sequence[ValueLesson]) -> Tensor:
        """float32[M], of the tokens that have a target; `values` as `_values` gives them."""
        targets = self._flat((lesson.member, lesson.targets) for lesson in lessons)
        old = self._flat((lesson.member, lesson.values) for lesson in lessons)
        trained = ~torch.isnan(targets)
        values, targets, old = values[trained], targets[trained], old[trained]
        clipped = old + (values - old).clamp(-self.config.clip, self.config.clip)
        return 0.5 * torch.maximum((values - targets) ** 2, (clipped - targets) ** 2)

    def _values(self, members: Sequence[Trajectory]) -> Tensor:
        """float32[N]: in the order of the members, of each sampled token but a first one."""
        values: Tensor = self._compute(_head_values, members)
        return values

    def _rows(self, members: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
        """int64[B, T] contexts, and bool[B, T]: whether each is before a token that has a value."""
        return shifted(
            [(m.tokens.ids[span], _wanted(m)[span]) for m in members for span in m.tokens.spans]
        )

    def _hidden(self, members: Sequence[Trajectory]) -> tuple[Tensor, Row | None]:
        """[N, width] before each of those tokens; of a sliced row the own slice, and the row."""
        inputs, selected = self._rows(members)
        autocast = self.learning.autocast
        ids, chosen = inputs.to(self.device), selected.to(self.device)
        if (slicing := self._ranks.slicing) is not None:
            row = Row.of(ids, chosen, slicing)
            with offloaded(self.policy):
                return row.hidden(self.body, autocast), row
        spans = [(member.tokens, span) for member in members for span in member.tokens.spans]
        images = [own.images_in(span, span.stop - span.start - 1) for own, span in spans]
        given = inputs_of(self.policy, self.body, ids, images) or {"input_ids": ids}
        lower = torch.autocast(self.device.type, torch.bfloat16, enabled=autocast)
        with lower, offloaded(self.policy):
            hidden = self.body(use_cache=False, **given).last_hidden_state
        return hidden[chosen], None

    def _flat(self, rows: Iterable[tuple[Trajectory, NDArray[np.float32]]]) -> Tensor:
        pieces = [array[_wanted(member)] for member, array in rows]
        return torch.from_numpy(np.concatenate(pieces)).to(self.device)

    def _batches(self, lessons: Sequence[ValueLesson]) -> Iterator[tuple[list[ValueLesson], bool]]:
        for places, counts in self._micro_batches([lesson.member for lesson in lessons]):
            yield [lessons[place] for place in places], counts

    def _micro_batches(self, members: Sequence[Trajectory]) -> list[tuple[list[int], bool]]:
        """Places of this rank's trajectories that have values, and whether they count."""
        sampled = [place for place, member in enumerate(members) if _wanted(member).any()]

        def cost(place: int) -> int:
            return len(members[place].tokens)

        return own_batches(self._ranks, sampled, cost, partial(self._cut, members))

    def _cut(self, members: Sequence[Trajectory], sampled: Sequence[int]) -> Iterator[list[int]]:
        """Cut places of trajectories, by their longest contexts, into micro-batches of at most
        `tokens_per_micro_batch` padded tokens; a context is a row, a longer trajectory alone."""
        current: list[int] = []
        rows = 0
        for place in sorted(sampled, key=lambda place: _longest(members[place])):
            member = members[place]
            more = rows + len(member.tokens.spans)
            # In ascending order the newest has the longest row, to which all are padded.
            if current and more * _longest(member) > self.learning.tokens_per_micro_batch:
                yield current
                current, more = [], len(member.tokens.spans)
            current.append(place)
            rows = more
        if current:
            yield current


def value_lessons(groups: Sequence[Group], signals: Signals, credits: Credits) -> list[ValueLesson]:
    """The graded trajectories that have values and targets."""
    lessons = []
    for member in graded(groups):
        values, targets = signals.of(member).values, credits.value_targets.get(member.id)
        if values is not None and targets is not None:
            lessons.append(ValueLesson(member, values, targets))
    return lessons


def _head_values(critic: Critic, members: Sequence[Trajectory]) -> Tensor:
    return values_of(critic.head, *critic._hidden(members))


def values_of(head: Callable[[Tensor], Tensor], hidden: Tensor, row: Row | None) -> Tensor:
    """The values, float32[N], of hidden states [N, width], or of those of a slice of a row."""
    values = head(hidden.float())[:, 0]
    return values if row is None else row.joined(values)


def target_count(lessons: Sequence[ValueLesson]) -> int:
    """How many tokens the critic is trained at."""
    return sum(len(lesson.at_targets(lesson.targets)) for lesson in lessons)


def _longest(member: Trajectory) -> int:
    return max(int(span.stop - span.start) for span in member.tokens.spans)


def _wanted(member: Trajectory) -> np.ndarray:
    """Sampled tokens that something stands before, in their context."""
    wanted = member.tokens.mask.copy()
    # A record without tokens has a context as well.
    wanted[[span.start for span in member.tokens.spans if span.start < len(wanted)]] = False
    return wanted
