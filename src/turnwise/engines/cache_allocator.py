"""The division of the cache among sessions, and the choice of those that give way when it is full.

The cache has places for so many tokens. A session gets a run of them as long as its history, with a
little room, and a longer one when that is full: the number of tokens bounds how many sessions are
in the cache, and not how long one may become. A session that loses its run is computed again.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from turnwise.engines.sessions import Request, Session, run_of
from turnwise.forward.cache import CacheExtent

SHORTEST = 64
"""Places of the shortest run; others are 1.5 or 1.33 times as long as the next shorter one, so that
neighbours often have one size."""
ROOM = 32
"""Tokens that a session can add before its run is too short, if it may sample so many."""
SCATTERED = 4
"""One in so many running sessions may lie apart from those with runs of its size."""

Moves = Sequence[tuple[int, int, int]]
"""(source, target, length) of places."""


class CacheAllocator:
    """Example: `allocator.seat(waiting, most=8)`, then `allocator.grow(running, waiting)` before
    each pass, and `allocator.free(session)` at its end.

    `tokens` places for at most `max_sequences` sessions, each of at most `longest` tokens; `move`
    takes places of the cache elsewhere. With `whole_turns` a session gets room for all that it may
    sample in its turn, so that nothing changes between admissions. Where there is room for
    `max_sequences` of the longest, each gets a run of that length at once.
    """

    def __init__(
        self,
        tokens: int,
        max_sequences: int,
        longest: int,
        move: Callable[[Moves], None],
        whole_turns: bool = False,
    ) -> None:
        self._tokens, self._max_sequences = tokens, max_sequences
        self._longest, self._move = longest, move
        self._whole_turns = whole_turns
        self.seated: list[Session] = []
        """Sessions that have a run, in the order of their runs."""
        self._left: dict[Session, int] = {}
        """Old places of what is cached of sessions that have got another run."""
        self._clock = 0
        self.evictions = 0

    @property
    def used(self) -> int:
        """Places that belong to a session."""
        return sum(run_of(session).size for session in self.seated)

    def seat(self, waiting: Sequence[Request], most: int) -> list[Request]:
        """Admit at most `most` requests in the order given, up to the first that does not fit;
        returns those that have a run. Room is made by sessions idle for longest, then by the last
        in the queue; running ones keep their runs."""
        seated: list[Request] = []
        for position, request in enumerate(waiting[:most]):
            if not self._fit(request, waiting[position + 1 :]):
                break
            self._clock += 1
            request.session.last_used = self._clock
            seated.append(request)
        self._follow()
        return seated

    def grow(self, running: Sequence[Request], waiting: Sequence[Request]) -> list[Request]:
        """Give running requests, in order, runs that all their tokens fit in; if need be the last
        ones give theirs up, and are returned. With whole turns they have had such runs before."""
        if self._whole_turns:
            return []
        left = list(running)
        for request in running:
            while request in left and not self._fit(request, waiting):
                # The last one admitted gives way, in the end the request itself.
                self._evict(left.pop().session)
        self._follow()
        return [request for request in running if request not in left]

    def tidy(self, running: Sequence[Request]) -> None:
        """Bring runs of one size together when those of running sessions lie scattered."""
        runs = sorted((request.run for request in running), key=lambda run: run.start)
        apart = sum(
            first.end != second.start or first.size != second.size
            for first, second in pairwise(runs)
        )
        if apart > len({run.size for run in runs}) + len(runs) // SCATTERED:
            self._compact(None)
        self._follow()

    def free(self, session: Session) -> None:
        if session.run is not None:
            self.seated.remove(session)
        self._left.pop(session, None)
        session.run = None
        session.length = 0

    def _fit(self, request: Request, others: Sequence[Request]) -> bool:
        """Whether the session has a run long enough, now that idle ones and `others` made room."""
        session = request.session
        left = len(request.draws) - len(request.tokens)
        wanted = request.known + (left if self._whole_turns else min(ROOM, left))
        # Spare room is for a run that has to be found anyway: a full one that fits stays.
        least = wanted if self._whole_turns else request.known
        if session.run is not None and session.run.size >= least:
            return True
        size = self._size(wanted)
        while not self._find(session, size):
            victim = self._victim(session, others)
            if victim is None:
                return False
            self._evict(victim)
        return True

    def _size(self, wanted: int) -> int:
        # Room for all at their longest: then no run ever has to grow or to move.
        if self._tokens >= self._max_sequences * self._longest:
            return self._longest
        # 64, 96, 128, 192, 256, ...: powers of two, and three quarters of them.
        power = 1 << (max(wanted, SHORTEST) - 1).bit_length()
        return min(power * 3 // 4 if SHORTEST < wanted <= power * 3 // 4 else power, self._longest)

    def _find(self, session: Session, size: int) -> bool:
        """Give the session a run of that size out of what is free, its own included."""
        own = 0 if session.run is None else session.run.size
        if not own and len(self.seated) == self._max_sequences:
            return False
        if self._extend(session, size) or self._settle(session, size):
            return True
        if self._tokens - self.used + own < size:
            return False
        # Places enough, but scattered: the session goes last, with all free places behind.
        self._compact(session)
        return self._extend(session, size) or self._settle(session, size)

    def _extend(self, session: Session, size: int) -> bool:
        """Grow a run in place, if the places behind it are free; whether they were."""
        if session.run is None:
            return False
        place = self.seated.index(session) + 1
        end = run_of(self.seated[place]).start if place < len(self.seated) else self._tokens
        if session.run.start + size > end:
            return False
        session.run = CacheExtent(session.run.start, size)
        return True

    def _settle(self, session: Session, size: int) -> bool:
        """Give the session a run in another gap, if there is one, and move its cache there."""
        start = self._gap(size)
        if start is None:
            return False
        if session.run is not None:
            # setdefault: if it moves twice before `_follow`, its tensors are at the first place.
            self._left.setdefault(session, session.run.start)
            self.seated.remove(session)
        session.run = CacheExtent(start, size)
        insort(self.seated, session, key=lambda one: run_of(one).start)
        return True

    def _follow(self) -> None:
        """Move what is cached to where the sessions' runs are now, all at once: a run was free when
        it was given, so that nothing lies there but what has got another one as well."""
        moves = [
            (start, run_of(session).start, session.length)
            for session, start in self._left.items()
            if session.length and start != run_of(session).start
        ]
        self._left.clear()
        if moves:
            self._move(moves)

    def _gap(self, size: int) -> int | None:
        """The start of the first such gap, but rather of one behind a run of the same size."""
        found = None
        # The beginning of the pool is as good as a neighbour of the same size.
        start, before = 0, size
        for run in [*map(run_of, self.seated), CacheExtent(self._tokens, 0)]:
            if run.start - start >= size:
                if before == size:
                    return start
                found = start if found is None else found
            start, before = run.start + run.size, run.size
        return found

    def _compact(self, last: Session | None) -> None:
        """Close all gaps: running sessions come first, by size, and `last` comes behind all."""
        start = 0
        # Rows of a pass are those of running sessions: they should be neighbours.
        order = sorted(self.seated, key=lambda s: (s is last, s.request is None, run_of(s).size))
        for session in order:
            run = run_of(session)
            self._left.setdefault(session, run.start)
            session.run = CacheExtent(start, run.size)
            start += run.size
        self.seated = order

    def _evict(self, session: Session) -> None:
        self.free(session)
        self.evictions += 1

    def _victim(self, session: Session, others: Iterable[Request]) -> Session | None:
        # Idle sessions first: no turn of theirs is held up.
        idle = [seated for seated in self.seated if seated.request is None]
        if idle:
            return min(idle, key=lambda seated: seated.last_used)
        waiting = [r.session for r in others if r.session.run is not None]
        # The last in the queue: it waits longest before it is computed again.
        return next((one for one in reversed(waiting) if one is not session), None)
