"""Small runs with samplers, which are tasks of this process (`tests/cluster/workers/fleet.py`).

Not here: samplers that are processes (`test_processes.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.cluster.workers.fleet import Fleet
from turnwise.cluster import serving
from turnwise.cluster.hiring import Hired
from turnwise.cluster.pool import Launcher
from turnwise.cluster.samplers.frames import Setup
from turnwise.cluster.samplers.parts import engine_of, facts_of
from turnwise.cluster.samplers.sampler import Sampler
from turnwise.cluster.serving import Work
from turnwise.config import load_recipe
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Image
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.training.run import run as run_stages


class Passing:
    """An engine that does what another one does. See Engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def version(self) -> int:
        return self.engine.version

    def open(self, session: str) -> None:
        self.engine.open(session)

    def close(self, session: str) -> None:
        self.engine.close(session)

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        return await self.engine.generate(prompt, sampling, session=session, images=images)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        await self.engine.load_weights(weights, version)

    async def sleep(self) -> None:
        await self.engine.sleep()

    async def stop(self) -> None:
        await self.engine.stop()


class Harassed(Fleet):
    """Samplers of which one dies at certain turns, or loads, counted over all of them."""

    def __init__(self, turns: Sequence[int] = (), loads: Sequence[int] = ()) -> None:
        super().__init__(self._harassed)
        self.due = {"turn": turns, "load": loads}
        self.counts = {"turn": 0, "load": 0}

    async def _harassed(self, host: str, port: int, secret: bytes) -> None:
        await serving.serve(host, port, secret, self.build)

    def build(self, setup: Setup) -> tuple[str, Work]:
        """See serving.serve."""
        engine = self.engine(engine_of(setup.recipe))

        async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await Sampler(engine, reader, writer).work()
            finally:
                await engine.stop()

        return facts_of(setup.recipe), work

    def engine(self, engine: Engine) -> Engine:
        """The engine of a sampler."""
        return Mortal(engine, self)


class Mortal(Passing):
    """The engine of a sampler that may die."""

    def __init__(self, engine: Engine, fleet: Harassed) -> None:
        super().__init__(engine)
        self.fleet, self.task = fleet, asyncio.current_task()

    def count(self, what: str) -> None:
        """Die, if it is time."""
        self.fleet.counts[what] += 1
        if self.fleet.counts[what] in self.fleet.due[what]:
            assert self.task is not None
            self.task.cancel()

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        if not session.startswith(("probe", "parity")):
            self.count("turn")
        return await super().generate(prompt, sampling, session=session, images=images)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.count("load")
        await super().load_weights(weights, version)


class Liar(Passing):
    """Says that it has new weights, and keeps the old ones, but for the first."""

    loads = 0

    @property
    def version(self) -> int:
        return self.loads

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.loads += 1
        await self.engine.load_weights(weights if self.loads == 1 else {}, version)


class Stuck(Passing):
    """Never takes weights but the first."""

    loads = 0

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.loads += 1
        if self.loads > 1:
            await asyncio.Event().wait()
        await super().load_weights(weights, version)


class Dying(Passing):
    """Dies with its first turn."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.task = asyncio.current_task()

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        if self.task is not None and not session.startswith(("probe", "parity")):
            self.task.cancel()
        return await super().generate(prompt, sampling, session=session, images=images)


class Full(Passing):
    """Has no memory for weights."""

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        raise RuntimeError("out of memory")


class Broken(Passing):
    """Has a bug in what is not a turn."""

    def open(self, session: str) -> None:
        if not session.startswith(("probe", "parity")):
            raise RuntimeError("no such page")
        super().open(session)


class Waiting(Passing):
    """Samples no turn after the first update before another sampler has been compared."""

    def __init__(self, engine: Engine, fleet: "Growing") -> None:
        super().__init__(engine)
        self.fleet, self.first = fleet, fleet.starts == 1

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        probe = session.startswith(("probe", "parity"))
        if self.first and self.fleet.grown and not probe:
            await self.fleet.compared.wait()
        found = await super().generate(prompt, sampling, session=session, images=images)
        if not self.first:
            self.fleet.compared.set()
        return found

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.fleet.grown = self.fleet.grown or version > 0
        await super().load_weights(weights, version)


class Growing(Harassed):
    """There is room for the first sampler alone, and after an update for the others too."""

    def __init__(self) -> None:
        super().__init__()
        self.grown, self.compared = False, asyncio.Event()

    async def has_room(self, index: int) -> bool:
        return index == 0 or self.grown

    def engine(self, engine: Engine) -> Engine:
        return Waiting(engine, self)


class Nowhere(Harassed):
    """There is room for no sampler."""

    async def has_room(self, index: int) -> bool:
        return False


class Kept(Passing):
    """Keeps what it is given."""

    names: ClassVar[list[str]] = []

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.names[:] = weights
        await super().load_weights(weights, version)


class Each(Harassed):
    """Samplers with an engine of a kind, the later ones with that of another."""

    def __init__(self, *kinds: type[Passing]) -> None:
        super().__init__()
        self.kinds = list(kinds)

    def engine(self, engine: Engine) -> Engine:
        kind = self.kinds[0] if len(self.kinds) == 1 else self.kinds.pop(0)
        return kind(engine)


def sampled_by(
    launcher: Launcher, count: int, recipe: Path, folder: RunFolder, *overrides: str
) -> RunContext:
    """Run a recipe to its end with so many samplers."""
    loaded = load_recipe(str(recipe), (*overrides, f"cluster.samplers={count}"))
    context = prepare(loaded, folder, SilentDisplay(), Hired(samplers=launcher))
    asyncio.run(run_stages(context))
    return context
