"""The trajectories of earlier steps, and their part in the updates of later ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from turnwise.algorithms.losses import TrainedTokens, policy_loss
from turnwise.learning.batch import Example, MicroBatch, policy_examples, weigh
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import add_gradient
from turnwise.learning.scoring import batch_logprobs
from turnwise.learning.signals.base import Signals, graded
from turnwise.learning.signals.makers import MakeSecond, SecondParts, SignalMaker
from turnwise.seeds import derive
from turnwise.types import Group
from turnwise_algorithms.experience_replay import TINY, freshness, importances
from turnwise_algorithms.signals.beside import Beside

ARRAYS = ("ids", "trained", "sampled", "behaviour_logprob", "old_logprob", "advantage")


class Past(NamedTuple):
    example: Example
    priority: float
    step: int


class Replay(Beside):
    """The trajectories of earlier steps, the newest `capacity` of them."""

    def __init__(self, *given: Any, seed: int) -> None:
        super().__init__(*given)
        self._seed, self._step = seed, 0
        self.past: list[Past] = []
        self._plain = replace(self.algorithm, token_filter="none", kl_coefficient=0.0)

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        return bool(self.past) and self._count(groups, credits) > 0

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        problem, drawn = "", self.drawn(self._count(groups, credits), groups[0].id)
        for batch in self.batches(drawn):
            losses = policy_loss(self._tokens(batch), self._plain).losses
            problem = problem or batch.problem(losses.detach())
            add_gradient(losses.sum())
        return problem

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Take in what the step was learned from."""
        rewards = {str(member.id): member.reward or 0.0 for member in graded(groups)}
        for example in policy_examples(groups, credits, self.algorithm, True):
            # Without images, which each checkpoint would hold, and without old records of experts.
            if example.trained.any() and not example.images:
                priority = abs(rewards[example.name]) + TINY
                self.past.append(Past(replace(example, experts=None), priority, self._step))
        self.past = self.past[-int(self.numbers["capacity"]) :]
        self._step += 1
        return {"replay/trajectories": float(len(self.past))}

    def drawn(self, count: int, name: str) -> list[Example]:
        """So many of the past, some of them more than once, with their weights in the loss."""
        if not self.past or not count:
            return []
        priorities = np.array([one.priority for one in self.past])
        ages = np.array([self._step - one.step for one in self.past], np.float64)
        chances = freshness(priorities, ages, self.numbers["age_decay"], self.numbers["exponent"])
        # By seed and name alone, so that a resumed run draws the same.
        random = np.random.default_rng(derive(self._seed, "replay", name))
        chosen = random.choice(len(chances), count, p=chances)
        scales = importances(chances[chosen], self.numbers["importance"])
        aggregation = partial(self.algorithm.call, "aggregation")
        examples = weigh([self.past[place].example for place in chosen], aggregation)
        pairs = zip(examples, scales.tolist(), strict=True)
        return [replace(one, weight=one.weight * scale) for one, scale in pairs]

    def state(self) -> dict[str, Any]:
        kept = {
            str(place): {name: torch.tensor(getattr(one.example, name)) for name in ARRAYS}
            | {"name": one.example.name, "group": one.example.group}
            | {"priority": one.priority, "step": one.step}
            for place, one in enumerate(self.past)
        }
        return {"step": self._step, "past": kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._step, self.past = state["step"], []
        for one in state["past"].values():
            arrays = {name: one[name].numpy() for name in ARRAYS}
            example = Example(one["name"], one["group"], **arrays)
            self.past.append(Past(example, one["priority"], one["step"]))

    def _count(self, groups: Sequence[Group], credits: Credits) -> int:
        """How many are drawn beside the new ones of an update."""
        new = sum(member.id in credits.trained for member in graded(groups))
        return round(float(self.numbers["replayed"]) * new)

    def _tokens(self, batch: MicroBatch) -> TrainedTokens:
        logprob, entropy = batch_logprobs(self.policy, batch, self.temperature, self.learning)
        own = batch.behaviour_logprob, batch.old_logprob, batch.advantage, batch.weight
        return TrainedTokens(logprob, *own, batch.sequence, entropy)


class ReplayMaker(SignalMaker):
    def second_model(self, given: SecondParts) -> MakeSecond:
        seed, learning = given.recipe.seed, given.recipe.learning
        return lambda own: Replay(own.model, given.algorithm, learning, own.temperature, seed=seed)
