"""Log-probabilities in hindsight: the model scores its own turns, having been told how it ended.

One message more, before the first sampled token, states the reward. Nothing is sampled, and the
task's secret is not told. A model that does not understand the message gives numbers that mean
little.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import ConfigError
from turnwise.learning.learner import PolicyScores
from turnwise.learning.scoring import Score, Sequenced
from turnwise.learning.signals.base import Signal, SignalArrays, Signals, by_trajectory, graded
from turnwise.learning.signals.makers import Oracle, SignalMaker, Sources
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import KeptTokens, Source
from turnwise.types import Group, Observation, Trajectory

HINT = "In hindsight: the reward of this attempt is {reward:.3g}."
# The longest text that `.3g` writes.
LONGEST_REWARD = -1.23e-100


@dataclass(frozen=True)
class Hindsight:
    """The `hindsight_logprobs` of every graded trajectory: NaN where nothing was sampled."""

    scored: Score
    scaffold: Scaffold

    def measure(self, groups: Sequence[Group]) -> Signals:
        members = graded(groups)
        places = [(member, span) for member in members for span in member.tokens.spans]
        hinted = [_with_hint(member, span, self.scaffold) for member, span in places]
        kept = [_kept_with_hint(*place, self.scaffold) for place in places]
        scores = iter(self.scored(hinted, kept=kept))
        wanted = iter(wanted for _, wanted in hinted)
        found = [np.full(len(member.tokens), np.nan, np.float32) for member in members]
        for member, own in zip(members, found, strict=True):
            for span in member.tokens.spans:
                own[span][member.tokens.mask[span]] = next(scores)[next(wanted)]
        return Signals(
            by_trajectory(members, [SignalArrays(hindsight_logprobs=own) for own in found])
        )


class HindsightMaker(SignalMaker):
    def check(self, run: Sources) -> None:
        check_context(run.scaffold, run.recipe.rollout.max_tokens, run.context)

    def of_policy(
        self, policy: PolicyScores, scaffold: Scaffold, oracle: Oracle, context: int | None
    ) -> Signal:
        return Hindsight(policy.score, scaffold)


def check_context(scaffold: Scaffold, max_tokens: int, context: int | None) -> None:
    """Raise ConfigError when an episode of `max_tokens` with the hint exceeds the model's
    context."""
    longest = len(_hint(scaffold, LONGEST_REWARD))
    if context is not None and max_tokens + longest > context:
        raise ConfigError(
            f"rollout.max_tokens is {max_tokens}, and telling the outcome takes {longest} more: "
            f"the model's context is {context}, lower rollout.max_tokens to {context - longest}"
        )


def _with_hint(member: Trajectory, span: slice, scaffold: Scaffold) -> Sequenced:
    """Ids of a context, the hint before the first that was sampled, and which were."""
    ids, mask = member.tokens.ids[span], member.tokens.mask[span]
    hint, first = _hint_of(member, scaffold), _first(member, span)
    return (
        np.concatenate([ids[:first], np.array(hint, np.int64), ids[first:]]),
        np.concatenate([mask[:first], np.zeros(len(hint), np.bool_), mask[first:]]),
    )


def _kept_with_hint(member: Trajectory, span: slice, scaffold: Scaffold) -> KeptTokens | None:
    """The tokens among which those of a context were drawn, with none for the hint."""
    kept = member.tokens.kept
    if kept is None:
        return None
    own, first = kept[span], _first(member, span)
    return KeptTokens.joined([own[:first], len(_hint_of(member, scaffold)), own[first:]])


def _first(member: Trajectory, span: slice) -> int:
    return int(np.argmax(member.tokens.mask[span]))


def _hint_of(member: Trajectory, scaffold: Scaffold) -> list[int]:
    assert member.reward is not None
    return _hint(scaffold, member.reward)


def _hint(scaffold: Scaffold, reward: float) -> list[int]:
    observation = Observation(HINT.format(reward=reward), Source.USER)
    return [token for segment in scaffold.extend(observation) for token in segment.tokens]
