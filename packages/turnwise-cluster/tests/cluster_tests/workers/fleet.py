"""Workers in this process, for tests of what is said to them: the real ones without Ray."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from turnwise.config import load_recipe
from turnwise.monitor.display import SilentDisplay
from turnwise.parts.resources import Resources
from turnwise.rollout.runner import Workers
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.training.run import run as run_stages
from turnwise_cluster.workers import worker

Serve = Callable[[str, int, bytes], Awaitable[None]]


class Fleet:
    """See Launcher. Starts workers as tasks; a test may end one with `kill`."""

    host = "127.0.0.1"

    def __init__(self, serve: Serve = worker.serve) -> None:
        self.serve = serve
        self.running: dict[int, asyncio.Task[None]] = {}
        self.starts = 0

    async def run(self, index: int, port: int, secret: bytes) -> str:
        self.starts += 1
        task = self.running[index] = asyncio.ensure_future(self._serve(port, secret))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        return "killed" if task.cancelled() else "it ended"

    async def _serve(self, port: int, secret: bytes) -> None:
        await self.serve(self.host, port, secret)

    def kill(self, index: int) -> None:
        """End a worker as if its process had died."""
        self.running[index].cancel()


def train_with(pool: Workers, recipe: Path, folder: RunFolder, *overrides: str) -> RunContext:
    """Run a recipe to its end with workers."""
    loaded = load_recipe(str(recipe), overrides)
    context = prepare(loaded, folder, SilentDisplay(), Resources(pool))
    asyncio.run(run_stages(context))
    return context
