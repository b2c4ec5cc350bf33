"""The embedded engine in a thread of its own: tools, rendering and learning go on beside it.

It has an event loop there, in which one forward pass follows the other without asking anybody:
between two passes it takes in what has arrived. What crosses over is whole turns, their results,
and weights, in the order in which they were asked for. Not here: what a pass computes and who is
admitted (`embedded.py`).
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from turnwise.engines.base import Completion, Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import InfrastructureError
from turnwise.types import Picture

Result = TypeVar("Result")


class ThreadedEngine:
    """Example: `ThreadedEngine(EmbeddedEngine(..., deterministic=False))`. See Engine; whoever uses
    it has to `stop` it. The thread begins with the first call."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self._sessions: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def open(self, session: str) -> None:
        """Announce a trajectory. Raises RuntimeError when it is open already."""
        if session in self._sessions:
            raise RuntimeError(f"session {session!r} is open already")
        self._sessions.add(session)
        self._tell(self.engine.open, session)

    def close(self, session: str) -> None:
        """Free what the session holds; cancels a request under way. Idempotent."""
        if session in self._sessions:
            self._sessions.remove(session)
            self._tell(self.engine.close, session)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        pictures: Sequence[Picture] = (),
    ) -> Completion:
        """Sample one turn; raises what `EmbeddedEngine.generate` raises."""
        work = self.engine.generate(prompt, sampling, session=session, pictures=pictures)
        return await self._ask(work)

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace weights; they must not change until it returns. See `EmbeddedEngine.load`."""
        await self._ask(self.engine.load(weights, version))

    async def rest(self) -> None:
        """Keeps everything, as `EmbeddedEngine.rest` does."""

    async def stop(self) -> None:
        """End the thread, after the pass that it is in; requests that wait get InfrastructureError.
        Idempotent."""
        if self._stopped:
            return
        if self._loop is not None and self._thread is not None:
            await self._ask(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._stopped = True

    async def _end(self) -> None:
        """Stop, and let everybody hear of it. Runs in the thread."""
        await self.engine.stop()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*rest, return_exceptions=True)

    def _tell(self, what: Callable[[str], None], session: str) -> None:
        if not self._stopped:
            self._begun().call_soon_threadsafe(what, session)

    async def _ask(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have it done in the thread. A cancellation gets there before whatever is asked next."""
        if self._stopped:
            work.close()
            raise InfrastructureError("the engine was stopped")
        asked = asyncio.run_coroutine_threadsafe(work, self._begun())
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            asked.cancel()
            raise

    def _begun(self) -> asyncio.AbstractEventLoop:
        """The thread's event loop. The thread is a daemon: a program that was never told to stop
        it can end."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="turnwise-engine", daemon=True
            )
            self._thread.start()
        return self._loop
