"""Requests to a judge whose right answer is known, since the verifier has judged the same episodes:
what a judge that is the policy is trained on (Kimi K2, arXiv 2507.20534, section 3.2.2)."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from operator import is_
from typing import Any

from turnwise.types import Group, Trajectory
from turnwise_judges.base import MalformedReplyError
from turnwise_judges.pairwise import Better, PairwiseJudge
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.prompt import Request
from turnwise_judges.reply import read_reply

PLACES = {Better.FIRST: 1.0, Better.SECOND: -1.0, Better.TIE: 0.0}
"""Numbers of the answers, whose mean is the bias towards the first place."""

Pair = tuple[Trajectory, Trajectory]
RefinableJudge = PairwiseJudge | PointwiseJudge


@dataclass(frozen=True)
class KnownQuestion:
    """A request, and the truth. Example: known_questions(judge, groups, 8, seed)[0]."""

    request: Request[Any]
    accepts: Callable[[Any], bool]
    """Whether an answer's value is the truth."""
    truth: str
    about: str


@dataclass(frozen=True)
class GradedReply:
    """A reply, held against the truth. Example: grade(question, text, seed)."""

    right: bool
    said: str
    """The value in words, or what is malformed."""
    malformed: bool = False
    place: float | None = None
    """1 for the first place, -1 for the second, 0 for neither; None without a comparison."""


def known_questions(
    judge: RefinableJudge, groups: Sequence[Group], count: int, seed: int
) -> list[KnownQuestion]:
    """At most `count` requests about graded episodes, the same for the same seed; none where all
    succeeded, or failed.

    Of the two compared one succeeded, and each place is right in half. A score above the middle is
    right for a success; as many successes as failures are asked about, or one more. So neither a
    place nor a constant score is right in more than half.
    """
    stream = random.Random(seed)
    if isinstance(judge, PairwiseJudge):
        return _comparisons(judge, groups, count, stream)
    return _scores(judge, groups, count, stream)


def grade(question: KnownQuestion, text: str, seed: int) -> GradedReply:
    """A reply as it is read strictly, with the nonces of `seed`; a malformed one is wrong."""
    try:
        value, _ = read_reply(text, question.request.nonce(seed), question.request.form)
    except MalformedReplyError as malformed:
        return GradedReply(False, str(malformed), malformed=True)
    place = PLACES[value] if isinstance(value, Better) else None
    return GradedReply(question.accepts(value), str(value), place=place)


def _comparisons(
    judge: PairwiseJudge, groups: Sequence[Group], count: int, stream: random.Random
) -> list[KnownQuestion]:
    pairs = list(_pairs(groups, stream))[:count]
    swapped = stream.randrange(2)
    return [
        _comparison(judge, pair, Better.SECOND if (number + swapped) % 2 else Better.FIRST)
        for number, pair in enumerate(pairs)
    ]


def _pairs(groups: Sequence[Group], stream: random.Random) -> Iterator[Pair]:
    """Pairs of a success and a failure of one group, one of each group before a second one."""
    by_group = []
    for group in groups:
        successes, failures = _by_success(group.graded)
        pairs = [(success, failure) for success in successes for failure in failures]
        stream.shuffle(pairs)
        by_group.append(pairs)
    stream.shuffle(by_group)
    return (pair for turn in zip_longest(*by_group) for pair in turn if pair is not None)


def _comparison(judge: PairwiseJudge, pair: Pair, truth: Better) -> KnownQuestion:
    first, second = pair if truth is Better.FIRST else pair[::-1]
    about = f"{first.group} episodes {first.episode} and {second.episode}"
    return KnownQuestion(judge.request(first, second), partial(is_, truth), str(truth), about)


def _scores(
    judge: PointwiseJudge, groups: Sequence[Group], count: int, stream: random.Random
) -> list[KnownQuestion]:
    both = _by_success([member for group in groups for member in group.graded])
    for members in both:
        stream.shuffle(members)
    stream.shuffle(both)
    middle = (judge.low + judge.high) / 2
    alternating = list(chain(*zip(*both, strict=False)))  # as many of each
    return [_score(judge, member, middle) for member in alternating[:count]]


def _score(judge: PointwiseJudge, member: Trajectory, middle: float) -> KnownQuestion:
    success = _succeeded(member)
    truth = f"{'above' if success else 'not above'} {middle:g}"
    return KnownQuestion(
        judge.request(member), lambda score: (score > middle) is success, truth, str(member.id)
    )


def _by_success(members: Sequence[Trajectory]) -> list[list[Trajectory]]:
    return [[one for one in members if _succeeded(one) is wanted] for wanted in (True, False)]


def _succeeded(member: Trajectory) -> bool:
    return member.verdict is not None and member.verdict.success
