"""The embedded engine in a thread of its own: tools, rendering and learning go on beside it.

Between two passes the thread takes what was asked for, in order; results are handed over at once.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from turnwise.engines import sessions
from turnwise.engines.base import Completion, Sampling
from turnwise.errors import InfrastructureError
from turnwise.tokens import Image

if TYPE_CHECKING:
    from turnwise.engines.embedded import EmbeddedEngine

Result = TypeVar("Result")


class ThreadedEngine:
    """See Engine; its user has to `stop` it. The thread begins with the first call."""

    def __init__(self, engine: "EmbeddedEngine") -> None:
        self.engine = engine
        self._sessions: set[str] = set()
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """Work for the thread between two passes; None ends it."""
        self._thread: threading.Thread | None = None
        self._stopped = False

    @property
    def version(self) -> int:
        return self.engine.version

    def open(self, session: str) -> None:
        """See Engine. Raises RuntimeError when it is open already."""
        # Known on this side too: the caller gets the error now, and does not wait for the thread.
        if session in self._sessions:
            raise RuntimeError(f"session {session!r} is open already")
        self._sessions.add(session)
        self._tell(partial(self.engine.open, session))

    def close(self, session: str) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
            self._tell(partial(self.engine.close, session))

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """See Engine; raises what `EmbeddedEngine.generate` raises."""
        # Here, since the thread's time is that of the passes.
        prepared = self.engine.prepare(prompt, sampling, images)
        return await self._submit(partial(self.engine.submit, prepared, session))

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """See `EmbeddedEngine.load_weights`; the weights must not change until it returns."""
        await self._submit(partial(self.engine.replace, weights, version))

    async def sleep(self) -> None:
        """Keeps everything."""

    async def stop(self) -> None:
        """End the thread after its pass; requests that wait get InfrastructureError. Idempotent."""
        self._stopped = True
        if self._thread is not None:
            self._asked.put(None)
            await asyncio.to_thread(self._thread.join)

    def _tell(self, what: Callable[[], None]) -> None:
        """Queue work; the thread is a daemon, so that a program that never stops it can end."""
        if self._stopped:
            return
        self._asked.put(what)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="turnwise-engine", daemon=True)
            self._thread.start()

    async def _submit(self, what: Callable[[Future[Result]], None]) -> Result:
        """Have work done in the thread, and wait. A caller that is cancelled has taken the future
        back before it asks for anything else."""
        if self._stopped:
            raise InfrastructureError("the engine was stopped")
        future: Future[Result] = Future()
        self._tell(partial(_begin, what, future))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # wrap_future cancels in the loop's next round: the session may have asked again.
            future.cancel()
            raise

    def _work(self) -> None:
        more = False
        while self._take_in(wait=not more):
            try:
                more = self.engine.advance()
            except Exception as error:  # noqa: BLE001 - it reaches all who wait for a turn
                self.engine.fail(error)
                more = False
        self.engine.end()

    def _take_in(self, wait: bool) -> bool:
        """Do what has been asked for, and wait if there is nothing else to do; False at the end."""
        while wait or not self._asked.empty():
            wait = False
            what = self._asked.get()
            if what is None:
                return False
            what()
        return True


def _begin(what: Callable[[Future[Result]], None], future: Future[Result]) -> None:
    try:
        what(future)
    except Exception as error:  # noqa: BLE001 - mistakes and bugs alike
        sessions.fail(future, error)
