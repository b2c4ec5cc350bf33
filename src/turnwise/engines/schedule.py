"""The requests of the embedded engine: which wait, which run, and when more are admitted."""

from turnwise.engines.admission import is_due
from turnwise.engines.cache_allocator import CacheAllocator
from turnwise.engines.sessions import Request


class Schedule:
    """At most `max_sequences` requests run, admitted by names in lockstep, else in order of
    arrival."""

    def __init__(self, allocator: CacheAllocator, max_sequences: int, deterministic: bool) -> None:
        self._allocator, self._max_sequences = allocator, max_sequences
        self._deterministic = deterministic
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._ended = 0
        """Running requests that have ended since the last admission."""
        self._passes = 0
        """Forward passes since the last admission."""

    @property
    def has_requests(self) -> bool:
        return bool(self.running or self.waiting)

    def drop_ended(self) -> None:
        """Forget requests that have their result, or were cancelled."""
        ended = {request for request in self.running + self.waiting if request.future.done()}
        if not ended:
            return
        for request in ended:
            if request.session.request is request:
                request.session.request = None  # cancelled, and who asked has not run since
        running = [request for request in self.running if request not in ended]
        self._ended += len(self.running) - len(running)
        self.running = running
        self.waiting = [request for request in self.waiting if request not in ended]

    def admission_due(self) -> bool:
        """Whether to admit requests now; lockstep counts ended turns, never waiting requests."""
        running = len(self.running)
        free = self._max_sequences - running
        ready = self._ended if self._deterministic else min(len(self.waiting), free)
        return is_due(running, ready, self._passes)

    def admit(self) -> None:
        """Let requests run that find room in the cache. Raises RuntimeError where an idle engine's
        cache has none for the first."""
        self._ended = self._passes = 0
        if self._deterministic:
            self.waiting.sort(key=lambda request: request.session.name)
        seated = self._allocator.seat(self.waiting, self._max_sequences - len(self.running))
        self.waiting = self.waiting[len(seated) :]
        self.running += seated
        self._allocator.tidy(self.running)
        if self.waiting and not self.running:
            raise RuntimeError("no request finds room in an idle engine's cache")

    def begin_pass(self) -> None:
        """Count a pass; the running requests that find no more room in the cache wait again."""
        self._passes += 1
        back = self._allocator.grow(self.running, self.waiting)
        self.waiting = back + self.waiting
        self.running = [request for request in self.running if request not in back]

    def fail(self, error: BaseException) -> None:
        for request in self.running + self.waiting:
            request.fail(error)
        self.running.clear()
        self.waiting.clear()
