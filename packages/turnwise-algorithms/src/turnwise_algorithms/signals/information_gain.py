"""Information gain: how much likelier the right answer becomes by each turn of an episode.

Before each turn the model reads what the agent had before it then, and the right answer as the
scaffold would write it, whose own tokens are scored: p = exp(mean log pi). Source: IGPO (arXiv
2510.14967). The right answer is the last of the environment's oracle; only the learner reads it, in
sequences that are thrown away: no trajectory holds it, and no agent sees it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import ConfigError, NotSupportedError
from turnwise.learning.learner import PolicyScores
from turnwise.learning.scoring import Score, Sequenced
from turnwise.learning.signals.base import Signal, SignalArrays, Signals, by_trajectory, graded
from turnwise.learning.signals.makers import Oracle, SignalMaker, Sources
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Action, Group, Task, Trajectory
from turnwise_algorithms.branching import sampled_turns

PROBES = ("0", "x")
"""Answers that begin and end otherwise, to see where in a turn the answer stands."""


@dataclass(frozen=True)
class InformationGain:
    """The `information_gains` of every graded trajectory, float64[K-1] for K turns up to the last
    with a sampled token: p before the next turn less p before the turn, 0 where nothing was
    sampled."""

    scored: Score
    scaffold: Scaffold
    oracle: Oracle
    context: int | None
    """The longest text that the policy reads, in tokens; None is no limit."""

    def measure(self, groups: Sequence[Group]) -> Signals:
        """Metrics are means over all gains, and of p before the last turn. Raises ConfigError for a
        task without a right answer, or without room for it in the model's context."""
        members = graded(groups)
        values = self._values(members)
        gains = [np.diff(own) for own in values]
        flat = np.concatenate([np.zeros(0), *gains])
        last = [own[-1] for own in values if len(own)]
        metrics = {
            **({"information/gain": float(flat.mean())} if len(flat) else {}),
            **({"information/answer": float(np.mean(last))} if last else {}),
        }
        arrays = [SignalArrays(information_gains=own) for own in gains]
        return Signals(by_trajectory(members, arrays), metrics)

    def _values(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """p before each turn, float64[K] each; one in which nothing was sampled has the next
        one's."""
        tasks = {member.task.id: member.task for member in members}
        answers = {
            name: right_answer(task, self.scaffold, self.oracle) for name, task in tasks.items()
        }
        sequences = [
            _before(member, turn, answers[member.task.id], self.context)
            for member in members
            for turn in sampled_turns(member)
        ]
        scores = self.scored(sequences)
        means = iter(
            float(np.exp(own[wanted].astype(np.float64).mean()))
            for own, (_, wanted) in zip(scores, sequences, strict=True)
        )
        found = []
        for member in members:
            acted = sampled_turns(member)
            measured = np.array([next(means) for _ in acted], np.float64)
            turns = np.arange(acted[-1] + 1 if acted else 0)
            found.append(
                # A turn without a sampled token takes the value of the next that has one.
                measured[np.searchsorted(acted, turns, side="left")] if acted else measured
            )
        return found


class InformationGainMaker(SignalMaker):
    def check(self, run: Sources) -> None:
        longest, task = run.recipe.rollout.max_tokens, run.tasks[0]
        check_answer(task, run.scaffold, run.oracle, longest, run.context)

    def of_policy(
        self, policy: PolicyScores, scaffold: Scaffold, oracle: Oracle, context: int | None
    ) -> Signal:
        return InformationGain(policy.score, scaffold, oracle, context)


def right_answer(task: Task, scaffold: Scaffold, oracle: Oracle) -> Sequenced:
    """A turn that gives the right answer, as the scaffold writes it, and which of its tokens are
    the answer's, shared ones included. Raises ConfigError where the environment knows none."""
    try:
        actions = oracle(task)
    except NotSupportedError as error:
        raise ConfigError(
            f"estimator information_gain needs the right answers, which are those of the "
            f"environment's oracle: {error}; choose another algorithm"
        ) from None
    answer = actions[-1].answer if actions else None
    if not answer:
        raise ConfigError(
            f"estimator information_gain scores right answers, and the oracle of task {task.id} "
            "ends without one: choose another algorithm"
        )
    tokens = scaffold.render(Action("", answer=answer))
    others = [scaffold.render(Action("", answer=probe)) for probe in PROBES if probe != answer]
    # What answers that begin and end otherwise have in common is the scaffold's.
    start = min(_common(tokens, other) for other in others)
    end = min(_common(tokens[::-1], other[::-1]) for other in others)
    own = np.zeros(len(tokens), np.bool_)
    own[start : max(len(tokens) - end, start + 1)] = True
    return np.array(tokens, np.int64), own


def check_answer(
    task: Task, scaffold: Scaffold, oracle: Oracle, max_tokens: int, context: int | None
) -> None:
    """Raise ConfigError for a task without a right answer, and where one after the last turn of an
    episode of `max_tokens` exceeds the model's context."""
    answer, _ = right_answer(task, scaffold, oracle)
    most = None if context is None else context - len(answer) + 1  # a turn has a token at least
    if most is not None and max_tokens > most:
        raise ConfigError(
            f"rollout.max_tokens is {max_tokens}, and the right answer before a turn takes "
            f"{len(answer)}: the model's context is {context}, lower rollout.max_tokens to {most}"
        )


def _before(member: Trajectory, turn: int, answer: Sequenced, context: int | None) -> Sequenced:
    tokens = member.tokens
    first = int(np.flatnonzero(tokens.mask & (tokens.turn == turn))[0])
    start = next(span.start for span in tokens.spans if span.start <= first < span.stop)
    ids, own = answer
    length = first - start + len(ids)
    if context is not None and length > context:
        raise ConfigError(
            f"{member.group} episode {member.episode}: with the right answer after it turn {turn} "
            f"is {length} tokens long, and the model's context is {context}: lower "
            f"rollout.max_tokens by {length - context}"
        )
    read = np.zeros(first - start, np.bool_)
    return np.concatenate([tokens.ids[start:first], ids]), np.concatenate([read, own])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
