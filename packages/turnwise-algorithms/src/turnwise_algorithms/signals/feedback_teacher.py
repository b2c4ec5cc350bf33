"""Hindsight of a turn: the teacher is the policy's average, which has read the reply to the turn.

Of a graded trajectory that failed one turn is taught: the first that was malformed or had a call
that failed, else the last, among those that were replied to. Its tokens are scored by the policy
from the context before the turn, and by the policy's average, which has read there, in a message of
a user, what the environment replied: only tokens of the same trajectory, nothing of the verifier's
or of what came after. The rest is as in `self_teacher`. Source: HERO (arXiv 2606.11559).

Other than there: the reply itself is read, not a reflection on it that the model writes. Other than
in HinT-SD (arXiv 2605.17873), which teaches chosen turns of failed trajectories as well: a rule
chooses the turn, not a model that reads the whole trajectory and writes feedback. Other than in
SERL (Selective Hindsight Distillation): the divergence is the loss, where there the teacher weighs
GRPO's advantages of action tokens by a factor near 1; and all that was sampled in the turn is
taught, thoughts too.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.parts import Requirement
from turnwise.learning.signals.makers import Words
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Source, Tokens
from turnwise.types import Group, Observation, Trajectory, Turn
from turnwise_algorithms.signals.self_teacher import (
    Lesson,
    SelfTeacher,
    SelfTeacherMaker,
    ids_of,
    wanted_of,
)

SAID = (
    'An attempt at this turn, which did not lead to success, had the reply: "',
    '". Now the turn from its beginning.',
)
REPLIES = (Source.USER, Source.TOOL, Source.ENVIRONMENT)


class FeedbackTeacher(SelfTeacher):
    """A self-teacher of single turns."""

    @staticmethod
    def lessons(groups: Sequence[Group]) -> list[Lesson]:
        """A lesson for each graded failure with a turn that was replied to."""
        members = (member for group in groups for member in group.graded)
        failed = (one for one in members if one.verdict and not one.verdict.success)
        return [lesson for lesson in map(_lesson, failed) if lesson is not None]


class FeedbackTeacherMaker(SelfTeacherMaker):
    need, teacher_class = Requirement.FEEDBACK_TEACHER, FeedbackTeacher
    episodes = 1

    def words(self, scaffold: Scaffold) -> Words:
        """The tokens of a user's message up to the reply, and from there on."""
        before, after = (scaffold.extend(Observation(text, Source.USER)) for text in SAID)
        said = [segment.source for segment in before].index(Source.USER)
        return ids_of(before[: said + 1]), ids_of(after[said:])


def _lesson(member: Trajectory) -> Lesson | None:
    tokens, wanted = member.tokens, wanted_of(member)
    replies = {turn: _reply(tokens, turn) for turn in np.unique(tokens.turn[wanted]).tolist()}
    replied = [turn for turn, reply in replies.items() if len(reply)]
    if not replied:
        return None
    wrong = (turn for turn in replied if any(map(_is_wrong, member.turns[turn : turn + 1])))
    chosen = next(wrong, replied[-1])
    taught = wanted & (tokens.turn == chosen)
    places = np.flatnonzero(taught)
    # Up to the last taught token: nothing after it is read, and so nothing of what came later.
    return Lesson(member, taught[: places[-1] + 1], int(places[0]), replies[chosen])


def _reply(tokens: Tokens, turn: int) -> NDArray[np.int64]:
    """Take what came back after the last token that was sampled in a turn, as ids."""
    own = tokens.turn == turn
    shown = own & np.isin(tokens.source, REPLIES)
    shown[: np.flatnonzero(own & tokens.mask)[-1]] = False
    return np.asarray(tokens.ids[shown])


def _is_wrong(turn: Turn) -> bool:
    results = () if turn.step is None else turn.step.results
    return turn.action.error is not None or not all(result.ok for result in results)
