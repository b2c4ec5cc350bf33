"""Norms of the scores of sampled tokens: how far each log-probability could move the logits."""

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.forward.logprobs import score_norms
from turnwise.learning.learner import PolicyScores
from turnwise.learning.scoring import Score, score_contexts
from turnwise.learning.signals.base import Signal, SignalArrays, Signals, by_trajectory, graded
from turnwise.learning.signals.makers import Oracle, SignalMaker
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Group


@dataclass(frozen=True)
class ScoreNorms:
    """The `score_norms` of every graded trajectory: NaN where nothing was sampled, or first."""

    scored: Score

    def measure(self, groups: Sequence[Group]) -> Signals:
        members = graded(groups)
        norms = score_contexts(self.scored, members, score_norms, whole=False)
        return Signals(by_trajectory(members, [SignalArrays(score_norms=own) for own in norms]))


class ScoreNormsMaker(SignalMaker):
    def of_policy(
        self, policy: PolicyScores, scaffold: Scaffold, oracle: Oracle, context: int | None
    ) -> Signal:
        return ScoreNorms(policy.score)
