"""The training of a judge that is the policy: replies to requests whose answer the verifier knows,
as groups that the update learns from beside the step's own (Kimi K2, arXiv 2507.20534, 3.2.2)."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from operator import is_
from statistics import fmean
from typing import Any

from turnwise.engines.base import PATIENCE, Completion, Sampling, StopReason
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.rollout.runner import RolloutRunner, members_of, new_member
from turnwise.seeds import derive
from turnwise.storage.trajectory_rows import REFINEMENT
from turnwise.tokens import Segment, Tokens
from turnwise.types import Action, Group, Outcome, Task, Trajectory, Turn, Verdict
from turnwise_judges.base import MalformedReplyError
from turnwise_judges.making import Judge
from turnwise_judges.models import EngineModel
from turnwise_judges.pairwise import Better, PairwiseJudge
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.prompt import Request, read_reply
from turnwise_judges.settings import RefinementConfig

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
    swapped = stream.randrange(2)  # else one place is right more often, of odd numbers
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


@dataclass(frozen=True)
class Refinement:
    """Example: `await Refinement(judge, model, config).play(runner, groups, seed, step)`."""

    judge: RefinableJudge
    model: EngineModel
    config: RefinementConfig

    async def play(
        self, runner: RolloutRunner, groups: Sequence[Group], seed: int, step: int
    ) -> list[Group]:
        """A group of replies for each request about a step's graded episodes.

        A right reply has reward 1, any other 0; one that the engine could not give is ungraded. All
        follows from the run's seed, the step and the episodes. Raises RunStoppedError where too
        many are ungraded.
        """
        label = f"{REFINEMENT}/{step}"
        drawn = derive(seed, label)
        questions = known_questions(self.judge, groups, self.config.requests, drawn)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._group(runner, question, number, seed, label))
                for number, question in enumerate(questions)
            ]
        played = [task.result() for task in running]
        runner.check_ungraded(members_of(played))
        return played

    async def _group(
        self, runner: RolloutRunner, question: KnownQuestion, number: int, seed: int, label: str
    ) -> Group:
        messages = question.request.messages(self.judge.asker.seed)
        segments = self.model.segments(messages)
        task = Task(question.about, messages[-1]["content"])
        name = f"{label}/{number}"
        planned = [
            new_member(task, name, reply, seed, label) for reply in range(self.config.replies)
        ]
        members = await asyncio.gather(
            *(self._reply(runner, question, segments, number, one) for one in planned)
        )
        return Group(name, tuple(members))

    async def _reply(
        self,
        runner: RolloutRunner,
        question: KnownQuestion,
        segments: Sequence[Segment],
        number: int,
        planned: Trajectory,
    ) -> Trajectory:
        tokens = Tokens.empty().with_segments(segments, turn=0)
        # A lockstep engine goes by the order of names: zeros let them sort as numbers.
        session = f"{REFINEMENT}-{number:08d}-{planned.episode:08d}-{runner.priority}"
        opened, closed = partial(runner.engine.open, session), partial(runner.engine.close, session)
        async with runner.semaphore.held(runner.priority, opened, closed):
            try:
                completion = await self._sample(runner, tokens, session, planned.seed)
            except InfrastructureError as error:
                outcome = Outcome.INFRASTRUCTURE_MODEL
                return replace(planned, tokens=tokens, outcome=outcome, problem=str(error))
        sampled = completion.tokens, completion.logprobs, completion.version
        written = tokens.with_sampled(*sampled, turn=0, kept=completion.kept)
        played = replace(planned, tokens=written)
        return self._graded(played, question, completion)

    async def _sample(
        self, runner: RolloutRunner, tokens: Tokens, session: str, seed: int
    ) -> Completion:
        """Raises InfrastructureError for a request without room, and for an engine that hangs."""
        limits, longest = runner.limits, self.model.max_tokens
        problem = _no_room(len(tokens), longest, limits.max_tokens)
        if problem:
            raise InfrastructureError(problem)
        sampling = Sampling(
            max_tokens=longest,
            temperature=limits.temperature,
            top_k=limits.top_k,
            top_p=limits.top_p,
            min_p=limits.min_p,
            seed=derive(seed, "sampling", 0),
            returns_kept=limits.returns_kept,
        )
        try:
            async with asyncio.timeout(PATIENCE * limits.max_seconds):
                return await runner.engine.generate(tokens.ids.tolist(), sampling, session=session)
        except TimeoutError:
            raise InfrastructureError("the engine hangs") from None

    def _graded(
        self, played: Trajectory, question: KnownQuestion, completion: Completion
    ) -> Trajectory:
        text, reply = self.model.text(completion), self.model.reply(completion)
        graded = grade(question, reply, self.judge.asker.seed)
        action = Action(text, answer=reply)
        if graded.malformed:
            action = Action(text, error=f"Malformed: {graded.said}.")
        place = {} if graded.place is None else {"place": graded.place}
        verdict = Verdict(
            float(graded.right),
            graded.right,
            {"malformed": float(graded.malformed), **place},
            f"{graded.said}; the truth: {question.truth}",
        )
        outcome = _outcome(graded, completion.stop_reason)
        return replace(played, turns=(Turn(action),), outcome=outcome, verdict=verdict)


def _outcome(graded: GradedReply, stopped: StopReason) -> Outcome:
    if not graded.malformed:
        return Outcome.SUCCESS if graded.right else Outcome.FAILURE
    cut = stopped in (StopReason.MAX_TOKENS, StopReason.CONTEXT)
    return Outcome.TRUNCATED_TOKENS if cut else Outcome.AGENT_PARSE_ERROR


def make_refinement(judge: Judge, settings: RefinementConfig, max_tokens: int) -> Refinement:
    """Raises ConfigError where a trajectory of at most so many tokens has no room for a request."""
    assert isinstance(judge, PairwiseJudge | PointwiseJudge)  # the settings have seen to it,
    assert isinstance(judge.asker.model, EngineModel)  # and to this
    model, nothing = judge.asker.model, Trajectory(Task("", ""), "", 0, 0)
    request: Request[Any]
    if isinstance(judge, PairwiseJudge):
        request = judge.request(nothing, nothing)
    else:
        request = judge.request(nothing)
    shortest = len(model.prompt(request.messages(judge.asker.seed)))
    problem = _no_room(shortest, model.max_tokens, max_tokens)
    if problem:
        raise ConfigError(f"judge.refinement: without any record {problem}")
    return Refinement(judge, model, settings)


def refinement_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Replies and how many are right, malformed ones among the wrong; empty without any."""
    members = [member for group in groups for member in group.trajectories]
    if not members:
        return {}
    verdicts = [m.verdict for m in members if m.reward is not None and m.verdict is not None]
    means: dict[str, Sequence[float]] = {
        "accuracy": [verdict.success for verdict in verdicts],
        "malformed": [verdict.parts["malformed"] for verdict in verdicts],
        "position_bias": [v.parts["place"] for v in verdicts if "place" in v.parts],
    }
    counts = {
        "requests": len(groups),
        "replies": len(members),
        "ungraded": len(members) - len(verdicts),
        "tokens": sum(len(m.tokens) for m in members),
        "tokens_sampled": sum(int(m.tokens.mask.sum()) for m in members),
    }
    return {
        **{f"judge/refinement_{name}": fmean(values) for name, values in means.items() if values},
        **{f"judge/refinement_{name}": float(count) for name, count in counts.items()},
    }


def _no_room(prompt: int, reply: int, limit: int) -> str:
    if prompt + reply <= limit:
        return ""
    return (
        f"a request of {prompt} tokens and a reply of {reply} (judge.model.max_tokens) are more "
        f"than rollout.max_tokens = {limit}: raise it, or lower judge.max_characters or "
        "judge.model.max_tokens"
    )
