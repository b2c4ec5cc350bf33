"""The sessions of one sampler, and what was said of them: enough to go on with another process.

A lane stays when its process is lost. Where runs repeat, the next process hears all that was said
since no session was open, and so computes the same again; else it hears of the turns under way.
Not here: which session has which lane, and when a process is ready (`engine.py`).
"""

import asyncio
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from turnwise.cluster.samplers.frames import Ask, Cancel, Close, Frame, Open, Request
from turnwise.cluster.samplers.link import Link, settle
from turnwise.engines.base import Completion
from turnwise.errors import InfrastructureError

TRIES = 3
"""Samplers that may be lost with a turn, before its episode is ungraded; where runs repeat, no
episode is (see `STARTS`)."""


def lane_of(session: str, count: int) -> int:
    """The number of a session's lane by its name: episodes are dealt out in turn.

    >>> lane_of("00000005-0", 2)
    1
    """
    index = re.match(r"\d+(?=-)", session)
    return (int(index[0]) if index else zlib.crc32(session.encode())) % count


@dataclass(eq=False)
class Turn:
    """A turn under way."""

    ask: Ask
    done: "asyncio.Future[Completion]"
    losses: int = 0
    """Samplers that were lost with it."""


class Lane:
    """Example: `lane.open("00000001-0")`, `lane.ask(turn)`, `await turn.done`."""

    def __init__(self, repeats: bool, lost: "Callable[[Lane], None]") -> None:
        """With `repeats` another process computes the same again; `lost` is called when the lane
        has lost its process."""
        self._repeats, self._lost = repeats, lost
        self.link: Link | None = None
        self.sessions: dict[str, Turn | None] = {}
        """The open sessions, each with its turn while it has one."""
        self.lost_turns = 0
        """Turns under way when a process was lost."""
        self._frame: list[Request] = []
        """Requests of the present moment."""
        self._log: list[Frame] = []
        """All that was said since no session was open, where the lane repeats."""

    def open(self, session: str) -> None:
        """A session begins."""
        self.sessions[session] = None
        self._say(Open(session))

    def close(self, session: str) -> None:
        """A session has ended, and its turn with it."""
        self.cancel(session)
        del self.sessions[session]
        self._say(Close(session))

    def ask(self, turn: Turn) -> None:
        """A turn is to be sampled."""
        self.sessions[turn.ask.session] = turn
        self._say(turn.ask)

    def cancel(self, session: str) -> None:
        """The turn of a session, if it has one, is not needed any more."""
        turn = self.sessions[session]
        if turn is not None:
            turn.done.cancel()
            self.sessions[session] = None
            self._say(Cancel(session))

    def take(self, number: int, answer: Completion | BaseException) -> bool:
        """See Receiver."""
        for session, turn in self.sessions.items():
            if turn is not None and turn.ask.number == number:
                self.sessions[session] = None
                settle(turn.done, answer)
                return True
        return False

    def fail(self, error: BaseException) -> None:
        """No turn under way will be sampled."""
        for turn in list(filter(None, self.sessions.values())):
            self.take(turn.ask.number, error)

    def connect(self, link: Link) -> None:
        """Go on with a process that is ready."""
        self.link = link
        self._keep_frame()
        for frame in self._log if self._repeats else [self._state]:
            link.tell(frame)

    def disconnect(self, link: Link, reason: str) -> None:
        """See Receiver."""
        if self.link is not link:
            return
        self.link = None
        for turn in list(filter(None, self.sessions.values())):
            self.lost_turns += 1
            turn.losses += 1
            if turn.losses == TRIES and not self._repeats:
                self.take(turn.ask.number, InfrastructureError(f"{reason}; {TRIES} times"))
        self._lost(self)

    def renewed(self) -> None:
        """The weights have changed: what was said before would not be computed again."""
        self._send_frame()
        self._log = [self._state] if self.sessions else []

    def hand_over(self, other: "Lane") -> None:
        """Let another lane go on with all sessions."""
        for session, turn in self.sessions.items():
            other.open(session)
            if turn is not None:
                other.ask(turn)
        self.sessions.clear()
        self._frame.clear()

    @property
    def _state(self) -> Frame:
        """The requests that stand for all sessions, and the turns under way."""
        turns = [turn.ask for turn in self.sessions.values() if turn is not None]
        return [*map(Open, self.sessions), *turns]

    def _say(self, request: Request) -> None:
        if not self._frame:
            asyncio.get_running_loop().call_soon(self._send_frame)
        self._frame.append(request)

    def _send_frame(self) -> None:
        if (frame := self._keep_frame()) and self.link is not None:
            self.link.tell(frame)

    def _keep_frame(self) -> Frame:
        """The requests of this moment, which is over; where the lane repeats, they are kept."""
        frame, self._frame = self._frame, []
        if self._repeats and frame:
            self._log.append(frame)
        if not self.sessions:
            self._log.clear()
        return frame
