"""A reward model: a copy of the policy's body with one number in place of the vocabulary.

    outcome   sigma(s) after the last token: the chance that the episode is a success
    process   the same before each turn and at the end; a turn's reward is the change in its course
    pairs     sigma(s - centre), where s is learned from pairs and the centre is their mean s

Outcome: the verifier of Cobbe et al. 2021 (arXiv 2110.14168). Process: the outcome labels every
prefix, Math-Shepherd's soft label with one completion (arXiv 2312.08935), and progress is rewarded
(arXiv 2410.08146). Pairs: -log sigma(s_w - s_l), Bradley-Terry as in InstructGPT (arXiv 2203.02155,
equation 1), centred as in arXiv 2402.00742.
"""

import copy
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.forward.hidden import base_model, hidden_states
from turnwise.learning.batch import by_length
from turnwise.learning.optimizer import Optimizer, UpdateStats, add_gradient, prepare_for_training
from turnwise.rewards.deadlines import alone
from turnwise.rewards.measuring import PartError
from turnwise.tokens import Source, Tokens
from turnwise.types import Group, Trajectory
from turnwise_judges.settings import RewardModelConfig

HEAD_SPREAD = 1e-3
"""Standard deviation of the head's first weights."""


class Reading(NamedTuple):
    """A record and the places in it, int64[m] in order, after which a number is read."""

    tokens: Tokens
    places: NDArray[np.int64]


class Lesson(NamedTuple):
    """Something that a reward model learns from: an episode, or a pair, the better one first."""

    task: str
    readings: tuple[Reading, ...]
    success: bool = True
    """Whether the episode is a success; a pair has no such label."""


class RewardModel(nn.Module):
    """The form `outcome`; the others differ in what is read, and in the loss. The policy's body is
    copied, and all of it is trained."""

    def __init__(
        self, policy: nn.Module, config: RewardModelConfig, learning: LearningConfig
    ) -> None:
        super().__init__()
        self.model: Any = copy.deepcopy(base_model(policy)).requires_grad_(True)
        embeddings, vocabulary = (
            self.model.get_input_embeddings().weight,
            self.model.get_output_embeddings().weight,
        )
        if vocabulary is not embeddings:
            vocabulary.requires_grad_(False)  # nothing reads it
        self.device = embeddings.device
        self.head = nn.Linear(embeddings.shape[1], 1, device=self.device)
        # Chances begin near 1/2; of weights of 0 the body had no gradient.
        first = torch.randn(self.head.weight.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            self.head.weight.copy_(HEAD_SPREAD * first)
        nn.init.zeros_(self.head.bias)
        self.learning = learning
        self.trained = False
        """Whether its training is over; before that it has no number for any episode."""
        self.centre = 0.0
        """The mean score of pairs."""
        prepare_for_training(self)
        self.optimizer = Optimizer(self, config.learning_rate, learning)
        self._busy = threading.Lock()

    async def part_of(self, trajectory: Trajectory) -> float | list[float]:
        """The episode's number, or its turns', in a thread; the time that others have the model
        does not count. It is read alone, so that it is the same whatever else is under way. Raises
        PartError before the model is trained."""
        found: float | list[float] = await alone(self._busy, partial(self._scored, trajectory))
        return found

    @torch.no_grad()
    def _scored(self, trajectory: Trajectory) -> float | list[float]:
        if not self.trained:
            raise PartError(
                "the reward model is not trained: a run trains it; evaluate the run's folder"
            )
        numbers = self._numbers([self._reading(trajectory.tokens, len(trajectory.turns))])
        return self._score(numbers.double().cpu())

    def lessons(self, groups: Sequence[Group]) -> list[Lesson]:
        return [
            self.lesson(member.task.id, member.tokens, member.verdict.success)
            for group in groups
            for member in group.graded
            if member.verdict is not None and len(member.tokens)
        ]

    def lessons_of_step(self, groups: Sequence[Group]) -> list[Lesson]:
        """Lessons of groups that this model has rewarded, by the verifier alone."""
        return self.lessons(groups)

    def lesson(self, task: str, tokens: Tokens, success: bool) -> Lesson:
        turns = int(tokens.turn[-1]) + 1
        return Lesson(task, (self._reading(tokens, turns),), success)

    def update(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """One update on the mean loss of the lessons; one that is not finite changes nothing. No
        metrics without a lesson."""
        if not lessons:
            return {}
        with self._busy:
            batches = [[lessons[place] for place in places] for places in self._batches(lessons)]
            measured = [self._backward(batch, len(lessons)) for batch in batches]
            loss = sum(loss for loss, _ in measured)
            if math.isfinite(loss):
                moved = self.optimizer.apply()
            else:
                self.optimizer.clear()
                moved = UpdateStats(math.nan, 0.0, None)
        return {
            "reward_model/loss": loss,
            "reward_model/accuracy": sum(right for _, right in measured) / len(lessons),
            **moved.metrics("reward_model"),
        }

    def finish(self, lessons: Sequence[Lesson]) -> None:
        """End the training: from now on episodes have a number."""
        self.trained = True

    def margins(self, lessons: Sequence[Lesson]) -> list[float]:
        """Above 0 where the model expects success, or prefers the better one."""
        found = [math.nan] * len(lessons)
        for places, numbers in self._measured(lessons):
            for place, own in zip(places, numbers, strict=True):
                found[place] = float(self._margin(own))
        return found

    def state(self) -> dict[str, Any]:
        return {
            "form": type(self).__name__,
            "weights": self.state_dict(),
            "optimizer": self.optimizer.state(),
            "trained": self.trained,
            "centre": self.centre,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Raises ConfigError for a state of another form."""
        if state["form"] != type(self).__name__:
            raise ConfigError(
                f"the run's reward model is a {state['form']} and reward_model.form asks for a "
                f"{type(self).__name__}: leave reward_model.form as the run has it"
            )
        self.load_state_dict(state["weights"])
        self.optimizer.load_state(state["optimizer"])
        self.trained, self.centre = bool(state["trained"]), float(state["centre"])

    def _reading(self, tokens: Tokens, turns: int) -> Reading:
        return Reading(tokens, np.array([len(tokens) - 1]))

    def _score(self, numbers: Tensor) -> float | list[float]:
        return float(torch.sigmoid(numbers[-1]))

    def _losses(self, numbers: Tensor, lesson: Lesson) -> Tensor:
        target = torch.full_like(numbers, float(lesson.success))
        return functional.binary_cross_entropy_with_logits(numbers, target)

    def _margin(self, numbers: Tensor) -> Tensor:
        return numbers[-1]

    def _is_right(self, numbers: Tensor, lesson: Lesson) -> bool:
        return bool(self._margin(numbers) > 0) == lesson.success

    def _backward(self, batch: Sequence[Lesson], count: int) -> tuple[float, int]:
        """A batch's share of the mean loss, whose gradient is added up, and how many are right."""
        numbers = self._split(batch)
        losses = [self._losses(own, lesson) for own, lesson in zip(numbers, batch, strict=True)]
        loss = torch.stack(losses).sum() / count
        add_gradient(loss)
        right = sum(self._is_right(own, one) for own, one in zip(numbers, batch, strict=True))
        return float(loss.detach()), right

    def _measured(self, lessons: Sequence[Lesson]) -> Iterator[tuple[list[int], list[Tensor]]]:
        """Numbers without a gradient, with the lessons' places."""
        for places in self._batches(lessons):
            with self._busy, torch.no_grad():
                yield places, self._split([lessons[place] for place in places])

    def _split(self, batch: Sequence[Lesson]) -> list[Tensor]:
        """The numbers of each lesson, of all its readings in order."""
        numbers = self._numbers([reading for lesson in batch for reading in lesson.readings])
        counts = [sum(len(one.places) for one in lesson.readings) for lesson in batch]
        return list(torch.split(numbers, counts))

    def _numbers(self, readings: Sequence[Reading]) -> Tensor:
        """float32[M]: of each place of the readings, in order."""
        rows = [row for reading in readings for row in _rows(reading)]
        length = max(len(ids) for ids, _ in rows)
        # Padding comes after all that is read, where causal attention does not look.
        inputs = torch.zeros(len(rows), length, dtype=torch.long)
        selected = torch.zeros(len(rows), length, dtype=torch.bool)
        for number, (ids, places) in enumerate(rows):
            inputs[number, : len(ids)] = torch.tensor(ids)
            selected[number, places] = True
        hidden = hidden_states(
            self.model, inputs.to(self.device), selected.to(self.device), self.learning.autocast
        )
        numbers: Tensor = self.head(hidden.float())[:, 0]
        return numbers[_repeats(places for _, places in rows)]

    def _batches(self, lessons: Sequence[Lesson]) -> Iterator[list[int]]:
        """Places of lessons of similar length, at most `tokens_per_micro_batch` padded tokens."""
        padded, most = [_padded(one) for one in lessons], self.learning.tokens_per_micro_batch
        return by_length(range(len(lessons)), padded.__getitem__, most)


class ProcessRewardModel(RewardModel):
    """The form `process`."""

    def _reading(self, tokens: Tokens, turns: int) -> Reading:
        """Read before each turn, with all that was observed until then, and at the end."""
        written = np.isin(tokens.source, (Source.MODEL, Source.INHERITED)) & ~tokens.copied
        places = [len(tokens) - 1]
        for turn in reversed(range(turns)):
            own = np.flatnonzero(written & (tokens.turn == turn))
            # A turn without a token is read where the next one is: it changes nothing.
            places.append(max(int(own[0]) - 1, 0) if len(own) else places[-1])
        return Reading(tokens, np.array(places[::-1]))

    def _score(self, numbers: Tensor) -> list[float]:
        changes: list[float] = torch.sigmoid(numbers).diff().tolist()
        return changes


class PairsRewardModel(RewardModel):
    """The form `pairs`."""

    def lessons(self, groups: Sequence[Group]) -> list[Lesson]:
        """The best of each group with its worst, the second with the second last, and so on."""
        return self._paired(groups, _reward)

    def lessons_of_step(self, groups: Sequence[Group]) -> list[Lesson]:
        """Successes with failures, since rewards have this model's own number in them."""
        return self._paired(groups, _success)

    def _paired(self, groups: Sequence[Group], rank: Callable[[Trajectory], float]) -> list[Lesson]:
        found = []
        for group in groups:
            members = sorted((m for m in group.graded if len(m.tokens)), key=rank, reverse=True)
            half = len(members) // 2
            for better, worse in zip(members[:half], members[::-1][:half], strict=True):
                if rank(better) > rank(worse):
                    found.append(self.pair(better.task.id, better.tokens, worse.tokens))
        return found

    def pair(self, task: str, better: Tokens, worse: Tokens) -> Lesson:
        return Lesson(task, (self._reading(better, 0), self._reading(worse, 0)))

    def finish(self, lessons: Sequence[Lesson]) -> None:
        """The centre is measured on these lessons, and stays without any."""
        numbers = [own for _, batch in self._measured(lessons) for own in batch]
        if numbers:
            self.centre = float(torch.cat(numbers).double().mean())
        self.trained = True

    def _score(self, numbers: Tensor) -> float:
        return float(torch.sigmoid(numbers[-1] - self.centre))

    def _losses(self, numbers: Tensor, lesson: Lesson) -> Tensor:
        return functional.softplus(-self._margin(numbers))

    def _margin(self, numbers: Tensor) -> Tensor:
        return numbers[0] - numbers[1]


FORMS: Mapping[str, type[RewardModel]] = {
    "outcome": RewardModel,
    "process": ProcessRewardModel,
    "pairs": PairsRewardModel,
}


def _rows(reading: Reading) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The ids of each context that has places, up to the last one, and the places in it."""
    for span in reading.tokens.spans:
        inside = (reading.places >= span.start) & (reading.places < span.stop)
        if inside.any():
            places = reading.places[inside] - span.start
            yield reading.tokens.ids[span][: places[-1] + 1], places


def _repeats(rows: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """For each place of all rows its index among the different ones."""
    found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    count = 0
    for places in rows:
        # A place is computed once, however often it is read.
        different, index = np.unique(places, return_inverse=True)
        found.append(index + count)
        count += len(different)
    return np.concatenate(found)


def _padded(lesson: Lesson) -> int:
    """Tokens of its contexts, were they all as long as the longest."""
    spans = [span for reading in lesson.readings for span in reading.tokens.spans]
    return len(spans) * max(int(span.stop - span.start) for span in spans)


def _reward(member: Trajectory) -> float:
    assert member.reward is not None  # it is graded
    return member.reward


def _success(member: Trajectory) -> float:
    assert member.verdict is not None  # it is graded
    return float(member.verdict.success)
