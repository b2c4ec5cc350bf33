"""Sessions and their requests: plain bookkeeping, without tensors."""

import asyncio
import concurrent.futures
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.engines.images import SessionImages
from turnwise.engines.sampling import StopMatcher
from turnwise.forward.cache import CacheExtent
from turnwise.tokens import Image, KeptTokens

Result = TypeVar("Result")
Future = asyncio.Future[Result] | concurrent.futures.Future[Result]
"""A result to come, on one event loop, or between threads."""


@dataclass(eq=False)  # hashed by identity, as keys of the allocator; requests likewise
class Session:
    """One trajectory, from open to close."""

    name: str
    history: np.ndarray
    """int64[tokens at most], the first `length` cached; images are below 0 (`images.py`)."""
    length: int = 0
    run: CacheExtent | None = None
    request: "Request | None" = None
    last_used: int = 0
    """Time when its last request was admitted, by the allocator's clock."""
    images: SessionImages | None = None
    experts: np.ndarray | None = None
    """int16[tokens at most, routers, k] of each cached token, where they are recorded."""

    def ids(self, known: int) -> np.ndarray:
        """int64[known], the first tokens of the history as the model knows them; a copy."""
        history = self.history[:known]
        return history.copy() if self.images is None else self.images.restored(history)

    def take_over(self, donor: "Session", length: int) -> None:
        """Note that the first `length` tokens are cached, the new ones as copies of the donor's."""
        new = slice(self.length, length)
        if self.experts is not None and donor.experts is not None:
            self.experts[new] = donor.experts[new]
        self.length = length

    def begin(self, prompt: np.ndarray) -> None:
        """Make `prompt` the history; of what is cached, keep what it shares."""
        length = min(self.length, len(prompt))
        different = np.flatnonzero(self.history[:length] != prompt[:length])
        same = int(different[0]) if len(different) else length
        self.history[: len(prompt)] = prompt
        self.length = min(same, len(prompt) - 1)  # the last one's logits are needed


@dataclass(frozen=True)
class PreparedRequest:
    """A turn that is to be sampled: checked, and with all that needs no session."""

    prompt: np.ndarray
    """int64[tokens]"""
    images: Sequence[Image]
    sampling: Sampling
    draws: np.ndarray
    """float64[tokens that may be sampled]"""
    matcher: StopMatcher


@dataclass(eq=False)
class Request:
    """One turn being sampled."""

    session: Session
    prompt: int
    """Tokens of the history when the turn began."""
    sampling: Sampling
    draws: np.ndarray
    """float64[tokens that may be sampled], one random number for each."""
    matcher: StopMatcher
    future: Future[Completion]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)
    """int32, the tokens among which each one was drawn; none where they are not to be returned."""

    @property
    def known(self) -> int:
        return self.prompt + len(self.tokens)

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else int(self.session.history[self.prompt - 1])

    @property
    def missing(self) -> int:
        """Tokens whose keys and values are not cached: at least one, the last."""
        return self.prompt + len(self.tokens) - self.session.length

    @property
    def run(self) -> CacheExtent:
        return run_of(self.session)

    def take(
        self,
        token: int,
        logprob: float,
        kept: np.ndarray | None,
        version: int,
        ends: frozenset[int],
    ) -> None:
        """Append a sampled token; if it is the last one, hand over the completion."""
        self.session.history[self.known] = token
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if kept is not None:
            self.kept.append(kept)
        reason = self._reason_to_stop(token, ends)
        if reason is not None:
            # Before the result: whoever gets it may ask for the next turn at once.
            self.session.request = None
            # Versions only grow: if the first is the last, there is one.
            one = self.versions[0] == version
            versions = version if one else self.versions
            sets = KeptTokens.of(self.kept) if self.kept else None
            sampled = self.tokens, self.logprobs
            keep(self.future, Completion(*sampled, reason, versions, self._experts(), sets))

    def _experts(self) -> np.ndarray | None:
        start, known = self.sampling.experts_from, self.session.experts
        # The last token was sampled and not read: no router has seen it.
        return None if start is None or known is None else known[start : self.known - 1].copy()

    def _reason_to_stop(self, token: int, ends: frozenset[int]) -> StopReason | None:
        # First, since the matcher has to see every token.
        if self.matcher.feed(token):
            return StopReason.STOP_STRING
        if token in ends:
            return StopReason.END_OF_TEXT
        # Before CONTEXT: a turn that ends at both has got all that it asked for.
        if len(self.tokens) == self.sampling.max_tokens:
            return StopReason.MAX_TOKENS
        if len(self.tokens) == len(self.draws):
            return StopReason.CONTEXT
        return None

    def fail(self, error: BaseException) -> None:
        self.session.request = None
        fail(self.future, error)


def run_of(session: Session) -> CacheExtent:
    """The part of the cache that a session has. Raises RuntimeError when it has none."""
    if session.run is None:
        raise RuntimeError(f"session {session.name!r} has no part of the cache")
    return session.run


def keep(future: Future[Result], result: Result) -> None:
    """Hand a result over, unless its receiver was cancelled."""
    if not future.done():
        with suppress(concurrent.futures.InvalidStateError):  # cancelled just now, by its thread
            future.set_result(result)


def fail(future: Future[Result], error: BaseException) -> None:
    if not future.done():
        with suppress(concurrent.futures.InvalidStateError):
            future.set_exception(error)
