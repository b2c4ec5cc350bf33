"""Self-distillation: the teacher is the policy's own average, shown a success at the same task.

A trajectory with a successful sibling in its group is scored twice at its sampled tokens: by the
policy, and by a moving average of it that has read the sibling first. The policy is drawn towards
that by the Jensen-Shannon divergence, weighted by min(policy / sampling policy, cap). Source: SDPO
(arXiv 2601.20802), with its rate 0.05, alpha 0.5 and cap 2.

Other than there: the divergence is over the whole vocabulary, not 100 tokens and a rest; the
average moves once a step; a sibling is shown whole, as it was sampled; and no feedback is shown,
since what a verifier says may hold the task's secret: what the environment replied is shown by
`feedback_teacher`.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from turnwise.algorithms.kl import MAX_LOG_RATIO
from turnwise.algorithms.parts import Requirement
from turnwise.config import LearningConfig, SelfTeacherConfig
from turnwise.errors import ConfigError
from turnwise.forward.hidden import hidden_states, note_packing
from turnwise.forward.logprobs import LOGITS_PER_CHUNK, OutputLayer, in_chunks
from turnwise.forward.token_scores import kept_at, without_left_out
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import by_length, shifted
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import add_gradient
from turnwise.learning.ranks import ALONE, Compute, Ranks, is_leader, own_batches
from turnwise.learning.scoring import Sequenced
from turnwise.learning.signals.base import Signals, graded
from turnwise.learning.signals.makers import (
    MakeSecond,
    SecondParts,
    SignalMaker,
    Sources,
    Words,
)
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import KeptTokens, Segment, Source
from turnwise.types import Group, Observation, Trajectory

BEFORE, AFTER = "A successful attempt at this task:", "Now the task from the beginning."
BEGUN = (Source.MODEL, Source.INHERITED)


class Lesson(NamedTuple):
    """The beginning of a trajectory, and what its teacher has read before it goes on there."""

    member: Trajectory
    taught: NDArray[np.bool_]
    """Marks of the taught tokens among the first [n]; those after them are not read."""
    start: int
    """The place in the trajectory before which the teacher is shown something."""
    shown: NDArray[np.int64]
    """The tokens that it is shown there, without the words around them."""

    @property
    def own(self) -> Sequenced:
        """The policy's text."""
        return self.member.tokens.ids[: len(self.taught)], self.taught

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of the taught tokens in the trajectory."""
        return np.flatnonzero(self.taught)


class Divided(NamedTuple):
    """A policy on ranks that learn together."""

    ranks: Ranks
    compute: Compute
    copied: nn.Module
    """The policy again, not divided yet."""

    @classmethod
    def alone(cls, policy: nn.Module) -> "Divided":
        return cls(ALONE, ALONE.shard(policy), copy.deepcopy(policy))


class SelfTeacher:
    """The average of the policy, kept in float32, and its gradient on the policy.

    `policy` is copied, and what is trained of it is followed; `words` stand around what is shown;
    both distributions are at `temperature`, 0 for 1; `divided` is for ranks that learn together.
    """

    signals = Signals()

    def __init__(
        self,
        policy: nn.Module,
        words: Words,
        config: SelfTeacherConfig,
        learning: LearningConfig,
        coefficient: float,
        temperature: float = 1.0,
        divided: Divided | None = None,
    ) -> None:
        self.policy, self.words = policy, words
        self.config, self.learning = config, learning
        self.coefficient, self.temperature = coefficient, temperature or 1.0
        divided = divided or Divided.alone(policy)
        self._ranks, self._compute_policy, self.model = divided
        self.device = next(policy.parameters()).device
        note_packing(self.model, learning.autocast)
        self._compute = self._ranks.shard(self.model)
        self.model.requires_grad_(False).eval()
        own = dict(self.model.named_parameters())
        self._pairs = {n: (p, own[n]) for n, p in policy.named_parameters() if p.requires_grad}
        local = self._ranks.local
        # In float32 whatever the model's type: bfloat16 would round the small steps away.
        self._average = {n: local(mine).detach().float() for n, (_, mine) in self._pairs.items()}
        self._divergence = self._tokens = 0.0

    @staticmethod
    def lessons(groups: Sequence[Group]) -> list[Lesson]:
        """A lesson for each graded trajectory with a success among the others of its group, the
        lowest episode of several; one without sampled tokens neither learns nor teaches."""
        found = []
        for group in groups:
            members = [member for member in group.graded if wanted_of(member).any()]
            successes = sorted(
                (m for m in members if m.verdict is not None and m.verdict.success),
                key=lambda member: member.episode,
            )
            for member in members:
                others = [sibling for sibling in successes if sibling is not member]
                if others:
                    # Without its prompt, which the taught trajectory has itself.
                    shown = others[0].tokens.ids[_start(others[0]) :]
                    found.append(Lesson(member, wanted_of(member), _start(member), shown))
        return found

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The metric is the share of graded trajectories that can be taught."""
        count = len(graded(groups))
        return Signals(
            {}, {"self_teacher/taught": len(self.lessons(groups)) / count if count else 0.0}
        )

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        return self

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        return bool(self._trained(groups, credits))

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        """The coefficient times the mean over all taught tokens of weight times divergence. Returns
        the problem, if any."""
        taught = self._trained(groups, credits)
        count = sum(len(lesson.places) for lesson in taught)
        problem = ""
        most = self.learning.tokens_per_micro_batch
        cut = partial(by_length, length=self._cost, tokens_per_micro_batch=most)
        for batch, counts in own_batches(self._ranks, taught, self._cost, cut):
            divergences, weights = self._divergences(batch)
            told = counts and is_leader(self._ranks)
            # A rank without a lesson left takes part in the others' pass, with a gradient of 0.
            total = (divergences * weights).sum() * told
            if not math.isfinite(total.item()):
                problem = problem or f"the self-teacher's loss is {total.item()}"
            add_gradient(self.coefficient * total / count)
            if told and not problem:
                self._divergence += divergences.sum().item()
                self._tokens += len(divergences)
        return problem

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Moves the average towards the policy. Returns what the gradients since then measured."""
        ranks = self._ranks
        with torch.no_grad():
            for name, (theirs, mine) in self._pairs.items():
                now = ranks.local(theirs).to(ranks.dtype(theirs)).float()
                self._average[name].lerp_(now, self.config.rate)
                ranks.local(mine).copy_(self._average[name])
        own = self._divergence, self._tokens
        divergence, tokens = map(sum, zip(*ranks.gather(own), strict=True))
        self._divergence = self._tokens = 0.0
        if not tokens:
            return {}
        return {"self_teacher/divergence": divergence / tokens, "self_teacher/tokens": tokens}

    def state(self) -> dict[str, Any]:
        divided, pairs = self._ranks.divided, self._pairs
        return {"average": {n: divided(own, pairs[n][1]) for n, own in self._average.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, (_, mine) in self._pairs.items():
                self._average[name].copy_(self._ranks.local(state["average"][name]))
                self._ranks.local(mine).copy_(self._average[name])

    def _divergences(self, batch: Sequence[Lesson]) -> tuple[Tensor, Tensor]:
        """float32[N] each, of the taught tokens: divergences with their gradient, and weights."""
        own = [lesson.own for lesson in batch]
        shown = [with_shown(lesson, self.words) for lesson in batch]
        with torch.no_grad():
            shown_layer, told = self._compute(self._told, shown)
        ids = np.concatenate([row[wanted] for row, wanted in own])
        sampled = [lesson.member.tokens.logprob[lesson.places] for lesson in batch]
        targets = torch.from_numpy(ids).to(self.device)
        kept = KeptTokens.chosen([(one.member.tokens.kept, one.places) for one in batch])
        divergences, logprobs = self._compute_policy(
            self._compared, own, shown_layer, told, targets, kept
        )
        drift = logprobs - torch.from_numpy(np.concatenate(sampled)).to(self.device)
        ratios = drift.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        return divergences, ratios.clamp(max=self.config.cap)

    def _told(self, model: nn.Module, sequences: Sequence[Sequenced]) -> tuple[OutputLayer, Tensor]:
        """The teacher's output layer, kept for the gradient where divided, and its hidden
        states."""
        layer = OutputLayer.of(model, self.temperature)
        if self._ranks.count > 1:
            layer = replace(layer, head=copy.deepcopy(layer.head))
        return layer, self._read(model, sequences)

    def _compared(
        self,
        policy: nn.Module,
        sequences: Sequence[Sequenced],
        shown_layer: OutputLayer,
        told: Tensor,
        targets: Tensor,
        kept: KeptTokens | None,
    ) -> tuple[Tensor, Tensor]:
        layer = OutputLayer.of(policy, self.temperature)
        function = partial(_compared, layer, shown_layer, self.config.alpha, kept)
        # Half as many rows: the logits of two models are held at once.
        rows, hidden = layer.rows(LOGITS_PER_CHUNK // 2), self._read(policy, sequences)
        tensors = hidden, told, targets, torch.arange(len(targets))
        divergences, logprobs = in_chunks(function, rows, *tensors)
        return divergences, logprobs

    def _read(self, model: nn.Module, sequences: Sequence[Sequenced]) -> Tensor:
        inputs, selected = shifted(sequences)
        places = inputs.to(self.device), selected.to(self.device)
        return hidden_states(model, *places, self.learning.autocast)

    def _trained(self, groups: Sequence[Group], credits: Credits) -> list[Lesson]:
        """Lessons of trajectories that are in the loss; the others may still teach."""
        return [one for one in self.lessons(groups) if one.member.id in credits.trained]

    def _cost(self, lesson: Lesson) -> int:
        """The number of tokens that the teacher reads."""
        return len(lesson.taught) + len(lesson.shown) + sum(map(len, self.words))


class SelfTeacherMaker(SignalMaker):
    need, teacher_class = Requirement.SELF_TEACHER, SelfTeacher
    episodes = 2
    """The number of episodes in the longest text that the teacher reads."""

    def check(self, run: Sources) -> None:
        most = run.recipe.rollout.max_tokens
        check_room(self.words(run.scaffold), self.episodes, most, run.context)

    def words(self, scaffold: Scaffold) -> Words:
        return words_around(scaffold)

    def second_model(self, given: SecondParts) -> MakeSecond:
        words, ranks, average = given.words, given.ranks, given.copied()
        assert words is not None
        config = given.recipe.algorithm.self_teacher or SelfTeacherConfig()
        return lambda own: self.teacher_class(
            own.model,
            words,
            config,
            given.recipe.learning,
            getattr(given.algorithm, f"{self.need}_coefficient"),
            own.temperature,
            None if average is None else Divided(ranks, own.compute, average),
        )


def words_around(scaffold: Scaffold) -> Words:
    return _message(scaffold, BEFORE), _message(scaffold, AFTER)


def with_shown(lesson: Lesson, words: Words) -> Sequenced:
    """The teacher's text, and its taught tokens: the policy's, what is shown and words before and
    after it, and the policy's from there on."""
    (ids, wanted), start = lesson.own, lesson.start
    between = np.concatenate([words[0], lesson.shown, words[1]])
    return (
        np.concatenate([ids[:start], between, ids[start:]]),
        np.concatenate([wanted[:start], np.zeros(len(between), np.bool_), wanted[start:]]),
    )


def check_room(words: Words, episodes: int, max_tokens: int, context: int | None) -> None:
    """Raise ConfigError when so many episodes of `max_tokens` and the words exceed the model's
    context."""
    more = sum(map(len, words))
    if context is not None and episodes * max_tokens + more > context:
        raise ConfigError(
            f"rollout.max_tokens is {max_tokens}, but a self-teacher reads {episodes} times that "
            f"and {more} tokens more: the model's context is {context}, lower rollout.max_tokens "
            f"to {(context - more) // episodes}"
        )


def _compared(
    own: OutputLayer,
    shown: OutputLayer,
    alpha: float,
    kept: KeptTokens | None,
    hidden: Tensor,
    told: Tensor,
    targets: Tensor,
    places: Tensor,
) -> tuple[Tensor, Tensor]:
    """Divergences of whole distributions, and log-probabilities over the kept tokens,
    float32[n]."""
    policy = own(hidden)
    with torch.no_grad():
        teacher = shown(told)
    left = policy.detach()
    if kept is not None:
        left = without_left_out(left, kept_at(kept, places)).log_softmax(-1)
    logprobs = left.gather(1, targets[:, None])[:, 0]
    return jensen_shannon(policy, teacher, alpha), logprobs


def wanted_of(member: Trajectory) -> np.ndarray:
    """Sampled tokens that something stands before."""
    wanted = member.tokens.mask.copy()
    wanted[:1] = False
    return wanted


def _start(member: Trajectory) -> int:
    """The prompt's end: the first token that a policy sampled, or the end without one."""
    begun = np.isin(member.tokens.source, BEGUN)
    return int(np.argmax(begun)) if begun.any() else len(begun)


def _message(scaffold: Scaffold, text: str) -> np.ndarray:
    return ids_of(scaffold.extend(Observation(text, Source.USER)))


def ids_of(segments: Sequence[Segment]) -> NDArray[np.int64]:
    return np.array([token for segment in segments for token in segment.tokens], np.int64)


def jensen_shannon(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """(1 - alpha) KL(first || m) + alpha KL(second || m), m = (1 - alpha) first + alpha second.

    Generalised Jensen-Shannon divergence of GKD (arXiv 2306.13649), equation 1, in nats. Takes
    log-probabilities [n, V], each row summing to 1 and none -inf, and gives [n]; alpha in (0, 1).
    """
    parts = torch.stack([first + math.log(1 - alpha), second + math.log(alpha)])
    mixture = torch.logsumexp(parts, dim=0)
    of_first = (first.exp() * (first - mixture)).sum(dim=-1)
    of_second = (second.exp() * (second - mixture)).sum(dim=-1)
    return (1 - alpha) * of_first + alpha * of_second
