"""The observations that actions brought, chosen and weighed, in the policy's updates."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.learning.auxiliary import observed_tokens
from turnwise.learning.batch import Example, supervised_examples
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import add_gradient
from turnwise.learning.scoring import batch_logprobs
from turnwise.learning.signals.base import Signals, graded
from turnwise.learning.signals.makers import MakeSecond, SecondParts, SignalMaker
from turnwise.types import Group, Trajectory, TrajectoryId
from turnwise_algorithms.signals.beside import Beside
from turnwise_algorithms.world_modelling import (
    action_entropy,
    clipped_error,
    group_coefficient,
    most_uncertain,
)


class Transition(NamedTuple):
    group: int
    member: Trajectory
    observed: NDArray[np.bool_]
    """The tokens of the observation, among all of the trajectory's."""
    entropy: float
    """The entropy of the action before it."""


class WorldModel(Beside):
    """The policy itself, as a model of what actions bring."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._losses: list[float] = []

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        return bool(weighted_examples(groups, self.numbers))

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        problem, total = "", 0.0
        for batch in self.batches(weighted_examples(groups, self.numbers)):
            logprob, _ = batch_logprobs(self.policy, batch, self.temperature, self.learning)
            problem = problem or batch.problem(logprob.detach())
            # The place of the advantage has each token's weight: see `weighted_examples`.
            loss = (batch.advantage * clipped_error(logprob, self.numbers["confidence"])).sum()
            add_gradient(loss)
            total += loss.item()
        self._losses.append(total)
        return problem

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        losses, self._losses = self._losses, []
        return {"world_model/loss": float(np.mean(losses))} if losses else {}


class WorldModelMaker(SignalMaker):
    def second_model(self, given: SecondParts) -> MakeSecond:
        algorithm, learning = given.algorithm, given.recipe.learning
        return lambda own: WorldModel(own.model, algorithm, learning, own.temperature)


def weighted_examples(groups: Sequence[Group], numbers: Mapping[str, Any]) -> list[Example]:
    """The chosen observations of an update: each token's advantage is its weight in equation 11,
    the group's coefficient over the numbers of groups, of transitions chosen in its group, and of
    tokens of its observation."""
    found = list(transitions(groups))
    chosen = most_uncertain(np.array([one.entropy for one in found]), numbers["uncertain"])
    kept = [one for one, wanted in zip(found, chosen, strict=True) if wanted]
    counts = Counter(one.group for one in kept)
    coefficients = {place: _coefficient(groups[place], numbers) for place in counts}
    weights: dict[TrajectoryId, NDArray[np.float32]] = {}
    for group, member, observed, _ in kept:
        own = weights.setdefault(member.id, np.zeros(len(observed), np.float32))
        share = len(groups) * counts[group] * observed.sum()
        own[observed] = coefficients[group] / share
    weighted = ((one, weights[one.id]) for one in graded(groups) if one.id in weights)
    return [
        replace(one, weight=1.0, advantage=own[one.start : one.start + len(one.ids)])
        for member, own in weighted
        if own.any()
        for one in supervised_examples(member.tokens, str(member.id), own > 0)
    ]


def transitions(groups: Sequence[Group]) -> Iterator[Transition]:
    """Each action of a graded trajectory that something came back of, in order."""
    for number, group in enumerate(groups):
        for member in group.graded:
            tokens, observed = member.tokens, observed_tokens(member.tokens)
            for turn in np.unique(tokens.turn[observed]):
                own = tokens.turn == turn
                entropy = action_entropy(tokens.logprob[own & tokens.mask])
                yield Transition(number, member, own & observed, entropy)


def _coefficient(group: Group, numbers: Mapping[str, Any]) -> float:
    rewards = [member.reward for member in group.graded]
    return group_coefficient(np.array(rewards, np.float64), numbers["best_return"])
