"""Sessions, their requests, and the table of who sits in which cache row.

Plain bookkeeping. Not here: when a request is admitted (`embedded.py`), and tensors.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.engines.sampling import StopMatcher


@dataclass(eq=False)
class Session:
    """One trajectory, from open to close."""

    name: str
    history: np.ndarray
    """int64[tokens of a row]; keys and values of the first `length` are in the session's row."""
    length: int = 0
    row: int | None = None
    request: "Request | None" = None
    last_used: int = 0
    """When its last request was admitted, by the table's clock."""

    def keep_prefix(self, prompt: np.ndarray) -> None:
        """Make `prompt` the history; of what is cached, keep what it shares.

        The last token is always computed again, since its logits are needed.
        """
        length = min(self.length, len(prompt) - 1)
        different = np.flatnonzero(self.history[:length] != prompt[:length])
        self.length = int(different[0]) if len(different) else length
        self.history[: len(prompt)] = prompt


@dataclass(eq=False)
class Request:
    """One turn being sampled."""

    session: Session
    prompt: np.ndarray
    sampling: Sampling
    draws: np.ndarray
    """float64[tokens that may be sampled], one random number for each."""
    matcher: StopMatcher
    future: "asyncio.Future[Completion]"
    version: int = 0
    """Version of the weights, set when the request is admitted."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def take(self, token: int, logprob: float, ends: frozenset[int]) -> None:
        """Append a sampled token; if it is the last one, hand over the completion."""
        self.session.history[len(self.prompt) + len(self.tokens)] = token
        self.tokens.append(token)
        self.logprobs.append(logprob)
        reason = self._reason_to_stop(token, ends)
        if reason is not None:
            self.session.request = None
            self.future.set_result(Completion(self.tokens, self.logprobs, reason, self.version))

    def _reason_to_stop(self, token: int, ends: frozenset[int]) -> StopReason | None:
        if self.matcher.feed(token):
            return StopReason.STOP_STRING
        if token in ends:
            return StopReason.END_OF_TEXT
        if len(self.tokens) == self.sampling.max_tokens:
            return StopReason.MAX_TOKENS
        if len(self.tokens) == len(self.draws):
            return StopReason.CONTEXT
        return None

    def fail(self, error: BaseException) -> None:
        """Hand over an error, unless the request has ended."""
        self.session.request = None
        if not self.future.done():
            self.future.set_exception(error)


class SlotTable:
    """Which session sits in which cache row.

    `swap(first, second, length)` exchanges the first `length` columns of two cache rows.
    """

    def __init__(self, slots: int, swap: Callable[[int, int, int], None]) -> None:
        self._rows: list[Session | None] = [None] * slots
        self._swap = swap
        self._clock = 0
        self.evictions = 0

    def seat(self, waiting: Sequence[Request], most: int) -> list[Request]:
        """Admit requests in the order given, at most `most`; returns those that have a row.

        A session that has no row gets a free one; else that of the session which has been idle
        for longest; else that of the last one in the queue. A running session keeps its row.
        """
        seated: list[Request] = []
        for position, request in enumerate(waiting):
            if len(seated) == most:
                break
            if request.session.row is None:
                self._give_row(request.session, waiting[position + 1 :])
            self._clock += 1
            request.session.last_used = self._clock
            seated.append(request)
        return seated

    def free(self, session: Session) -> None:
        """Take the session's row away, and with it all that is cached."""
        if session.row is not None:
            self._rows[session.row] = None
        session.row = None
        session.length = 0

    def pack(self, running: Sequence[Request]) -> None:
        """Move running sessions to the first rows when many rows between them are not running."""
        sessions = {request.session.row: request.session for request in running}
        count = len(sessions)
        high = sorted(row for row in sessions if row is not None and row >= count)
        if not high or high[-1] < count + count // 4 + 1:
            return
        low = (row for row in range(count) if row not in sessions)
        for source, target in zip(high, low, strict=True):
            self._exchange(source, target)

    def _exchange(self, first: int, second: int) -> None:
        sessions = (self._rows[first], self._rows[second])
        length = max(session.length for session in sessions if session is not None)
        self._swap(first, second, length)
        self._rows[second], self._rows[first] = sessions
        for row in (first, second):
            session = self._rows[row]
            if session is not None:
                session.row = row

    def _give_row(self, session: Session, behind: Sequence[Request]) -> None:
        if None not in self._rows:
            self.free(self._victim(behind))
            self.evictions += 1
        session.row = self._rows.index(None)
        self._rows[session.row] = session

    def _victim(self, behind: Sequence[Request]) -> Session:
        seated = [session for session in self._rows if session is not None]
        idle = [session for session in seated if session.request is None]
        if idle:
            return min(idle, key=lambda session: session.last_used)
        return next(r.session for r in reversed(behind) if r.session.row is not None)
