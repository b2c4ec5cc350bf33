"""How a request is made: once if it is the same, under a deadline, within a budget.

A reply that is not in the wanted form is asked for once more, with the reason. What is late,
unreachable or malformed then is a missing judgement.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from weakref import WeakValueDictionary

from turnwise.chat.endpoint import NoWordsError
from turnwise.chat.recording import Recording
from turnwise.errors import InfrastructureError
from turnwise.evaluation.intervals import wilson
from turnwise_judges.base import Judgement, JudgeModel, MalformedReplyError, T
from turnwise_judges.prompt import Request, read_reply

TRIES = 2
"""Times that a request is made until its reply is in the wanted form."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one judge, for as long as its process lives. Example: Limits(seconds=30)."""

    seconds: float = 60.0
    """Deadline of one call."""
    max_concurrent: int = 8
    max_calls: int | None = None
    """Calls of the model in all; None for any number."""
    max_tokens: int | None = None
    """Tokens of all prompts and replies; no call begins when they are spent."""


@dataclass
class Counts:
    requests: int = 0
    """Also those that had been answered before."""
    calls: int = 0
    """Second tries included."""
    cache_hits: int = 0
    tokens: int = 0
    malformed: int = 0
    """Replies that were not in the wanted form."""
    late: int = 0
    unreachable: int = 0
    refused: int = 0
    """Calls that the budget had no room for."""
    missing: int = 0
    unreadable: int = 0
    """Missing requests that the model answered, but never in the wanted form."""
    seconds: float = 0.0
    """Seconds in calls, one after the other."""

    def metrics(self) -> dict[str, float]:
        """All of them but the seconds, under `judge/`."""
        return {f"judge/{key}": float(n) for key, n in asdict(self).items() if key != "seconds"}


class _CallFailed(Exception):
    """A call gave no reply."""


class Asker:
    def __init__(
        self,
        model: JudgeModel,
        limits: Limits,
        cache: Recording,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cache` keeps answers by the request's content, `seed` is for the nonces."""
        self.model, self.limits, self.seed = model, limits, seed
        self.counts = Counts()
        self._cache, self._clock = cache, clock
        self._semaphore = asyncio.Semaphore(limits.max_concurrent)
        # A lock is there as long as somebody has it or waits for it.
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ask(self, request: Request[T]) -> Judgement[T]:
        """The model's judgement; equal requests, at the same time too, are one call."""
        content = json.dumps([self.model.identity, request.content])
        key = hashlib.sha256(content.encode()).hexdigest()
        lock = self._under_way.setdefault(key, asyncio.Lock())
        self.counts.requests += 1
        async with lock:
            kept = self._kept(key, request)
            if kept is not None:
                self.counts.cache_hits += 1
                return kept
            judgement = await self._asked(request, key)
        self.counts.missing += judgement.value is None
        return judgement

    def _kept(self, key: str, request: Request[T]) -> Judgement[T] | None:
        """The judgement of the cache; one that is damaged there is made again."""
        reply = self._cache.get(key)
        if reply is None:
            return None
        try:
            value, reason = read_reply(reply, key, request.form)
        except MalformedReplyError:
            return None
        return Judgement(value, reason)

    async def _asked(self, request: Request[T], key: str) -> Judgement[T]:
        nonce, problem = request.nonce(self.seed), ""
        for _ in range(TRIES):
            try:
                text = await self._call(request, problem)
            except _CallFailed as failed:
                return Judgement(None, problem=str(failed))
            try:
                value, reason = read_reply(text, nonce, request.form)
            except MalformedReplyError as malformed:
                self.counts.malformed += 1
                problem = str(malformed)
                continue
            # Under the key in the nonce's place: other seeds have other nonces.
            self._cache.keep(key, json.dumps(json.loads(text) | {"nonce": key}))
            return Judgement(value, reason)
        self.counts.unreadable += 1
        return Judgement(None, problem=f"its reply is malformed: {problem}")

    async def _call(self, request: Request[T], problem: str) -> str:
        async with self._semaphore:
            self._check_budget()  # here, as others may have spent it while this one waited
            self.counts.calls += 1
            begun = self._clock()
            try:
                async with asyncio.timeout(self.limits.seconds):
                    reply = await self.model.complete(request.messages(self.seed, problem))
            except TimeoutError:
                self.counts.late += 1
                raise _CallFailed(f"no reply within {self.limits.seconds:g} s") from None
            except NoWordsError as error:  # the model was there
                self.counts.malformed += 1
                self.counts.unreadable += 1
                raise _CallFailed(str(error)) from error
            except InfrastructureError as error:
                self.counts.unreachable += 1
                raise _CallFailed(str(error)) from error
            finally:
                self.counts.seconds += self._clock() - begun
            self.counts.tokens += reply.tokens
            return reply.text

    def _check_budget(self) -> None:
        limits, counts = self.limits, self.counts
        for name, spent, most in (
            ("calls", counts.calls, limits.max_calls),
            ("tokens", counts.tokens, limits.max_tokens),
        ):
            if most is not None and spent >= most:
                counts.refused += 1
                raise _CallFailed(f"its budget of {most} {name} is spent: raise judge.max_{name}")


class UnreadableReplies:
    """Warns, once, of a step in which the model answered more requests in no usable form than
    before: where the 95% intervals (Wilson's) of the step and of all before do not overlap."""

    def __init__(self, counts: Counts, timing: Iterable[Mapping[str, float]] = ()) -> None:
        """`counts` are this process's; `timing` are lines of an interrupted run's steps before."""
        self._counts, self._said = counts, False
        self._unreadable, self._requests = _judged(timing)
        self._counted = (0, 0)

    def __call__(self, step: int) -> str:
        """Compare a step with those before, and give the warning, or nothing."""
        before, requests_before = self._unreadable, self._requests
        found = self._counts.unreadable - self._counted[0]
        requests = self._counts.requests - self._counted[1]
        self._counted = self._counts.unreadable, self._counts.requests
        self._unreadable, self._requests = before + found, requests_before + requests
        if self._said or not requests or not requests_before:
            return ""
        self._said = wilson(found, requests)[0] > wilson(before, requests_before)[1]
        if not self._said:
            return ""
        return (
            f"in RL step {step} the judge's model answered {found} of {requests} requests in no "
            f"usable form, {before} of {requests_before} before: see whether episodes make it do "
            f"so (turnwise show RUN --step {step}; docs/how-to/judges.md)"
        )


def _judged(timing: Iterable[Mapping[str, float]]) -> tuple[int, int]:
    """Unreadable requests, and all, of the steps before. Each process counts from 0."""
    unreadable = requests = 0
    last = (0, 0)
    for line in timing:
        now = int(line.get("judge/unreadable", 0)), int(line.get("judge/requests", 0))
        if now[1] < last[1]:
            last = (0, 0)
        unreadable, requests = unreadable + now[0] - last[0], requests + now[1] - last[1]
        last = now
    return unreadable, requests
