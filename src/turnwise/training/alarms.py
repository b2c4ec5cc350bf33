"""Warnings and errors of a run whose steps teach nothing, or nothing sound."""

import math
from collections.abc import Mapping

from turnwise.config import Recipe
from turnwise.errors import RunStoppedError
from turnwise.learning.parity import check_gap
from turnwise.monitor.display import Display
from turnwise.parts.algorithm_checks import truncates_untold

MAX_SKIPPED_STEPS = 3
"""Steps in a row that may have an update skipped for a loss or gradient that is not finite."""


class NoSignalAlarm:
    """Says why a step of a stage has taught nothing, each reason once."""

    def __init__(self, display: Display, stage: str) -> None:
        self._display, self._stage = display, stage
        self._said: set[str] = set()

    def check(self, step: int, reason: str | None) -> None:
        """Say the reason of the step, None where there was a signal."""
        if reason is not None and reason not in self._said:
            self._said.add(reason)
            self._display.say(f"warning: no learning signal in {self._stage} step {step}: {reason}")


class SkippedUpdates:
    """Says that an update was skipped, and stops the run after MAX_SKIPPED_STEPS in a row."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._in_a_row = 0

    def count(self, problem: str) -> None:
        """Take note of a step; "" where no update was skipped. Raises RunStoppedError."""
        self._in_a_row = self._in_a_row + 1 if problem else 0
        if problem:
            self._display.say(f"update skipped: {problem}")
        if self._in_a_row >= MAX_SKIPPED_STEPS:
            raise RunStoppedError(
                f"updates were skipped in {self._in_a_row} steps in a row, last: {problem}; "
                "lower learning_rate"
            )


def check_logprob_gap(recipe: Recipe, metrics: Mapping[str, float], step: int) -> None:
    """Stop the run where learner and engine disagree on what was sampled.

    There is no bound where they have to disagree: in steps sampled ahead by older weights, and
    where the engine left tokens out of the distribution and does not say which. Rounding needs no
    allowance here: it moves a token's log-probability by the logits times 1 - p, and a certain
    policy's own tokens, unlike the parity check's histories, have p near 1.
    """
    check_gap(metrics.get("policy/logprob_gap", 0.0), logprob_gap_bound(recipe), step)


def logprob_gap_bound(recipe: Recipe) -> float:
    """The largest `policy/logprob_gap` of a sound step, in nats; infinite where it has none."""
    ahead = recipe.train.max_staleness > 0
    return math.inf if ahead or truncates_untold(recipe) else recipe.parity_bound
