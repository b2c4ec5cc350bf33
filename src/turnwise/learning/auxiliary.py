"""Auxiliary losses: cross-entropy beside the policy loss, in the same optimizer updates.

A term's denominator is its own, all of its tokens in the optimizer batch, so neither other losses
nor micro-batches change its weight. All are off unless the algorithm has a coefficient for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.aggregation import token_mean
from turnwise.algorithms.algorithm import Algorithm
from turnwise.learning.batch import OBSERVATIONS, Example, supervised_examples, weigh
from turnwise.learning.credits import Credits
from turnwise.learning.sft import batch_of_step
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Tokens
from turnwise.types import Group, Trajectory


@dataclass(frozen=True)
class AuxiliaryTerm:
    """coefficient / N times the sum of -log pi over the N tokens of the examples."""

    name: str
    """The name in its metrics: `auxiliary/<name>_loss`, the mean over tokens, and `…_tokens`."""
    coefficient: float
    examples: Sequence[Example]
    """Each trained token with weight 1 / N, and at least one."""


class AuxiliaryLoss(Protocol):
    """Another loss on the policy's weights, whose gradient goes into the same updates."""

    @property
    def signals(self) -> Signals:
        """The measurements that it is made of; each of several processes makes its own of them."""

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        """Whether it makes an update of the groups where the policy loss makes none."""

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        """Adds its gradient on the groups of one update; returns the problem, "" if none."""


def auxiliary_terms(groups: Sequence[Group], algorithm: Algorithm) -> list[AuxiliaryTerm]:
    """The terms, with a token at least, of the batch's graded trajectories: observations (ECHO),
    and successes (VAPO, arXiv 2504.05118, whose coefficient is 0.1)."""
    members = [member for group in groups for member in group.graded]
    observed = [(member, observed_tokens(member.tokens)) for member in members]
    succeeded = [(m, m.tokens.mask) for m in members if m.verdict and m.verdict.success]
    return [
        *_term("observation", algorithm.observation_coefficient, _examples(observed)),
        *_term("success", algorithm.success_coefficient, _examples(succeeded)),
    ]


def demonstration_terms(
    demonstrations: Sequence[Example], algorithm: Algorithm
) -> list[AuxiliaryTerm]:
    """The PTX loss of Kimi K2 (arXiv 2507.20534, whose coefficient is not published), if any."""
    return _term("demonstration", algorithm.demonstration_coefficient, demonstrations)


def observed_tokens(tokens: Tokens) -> NDArray[np.bool_]:
    """bool[n]: replies of tools and environment to actions that were sampled in this trajectory,
    less images and what a branch or a context has from the one before, which is trained there."""
    own = np.isin(tokens.turn, tokens.turn[tokens.mask]) & ~tokens.copied & ~tokens.image_mask
    observed: NDArray[np.bool_] = own & np.isin(tokens.source, OBSERVATIONS)
    return observed


def demonstrations_of_step(
    demonstrations: Sequence[Tokens], size: int, step: int, seed: int
) -> list[Example]:
    """The examples that are mixed into one RL step: a function of the arguments alone."""
    order = batch_of_step(len(demonstrations), size, step, seed, "auxiliary")
    return [
        example
        for i in order
        for example in supervised_examples(demonstrations[i], f"demonstration {i}")
    ]


def _examples(members: Sequence[tuple[Trajectory, NDArray[np.bool_]]]) -> list[Example]:
    return [
        example
        for member, mask in members
        for example in supervised_examples(member.tokens, str(member.id), mask)
    ]


def _term(name: str, coefficient: float, examples: Sequence[Example]) -> list[AuxiliaryTerm]:
    if not coefficient or not any(example.trained.any() for example in examples):
        return []
    return [AuxiliaryTerm(name, coefficient, weigh(examples, token_mean))]
