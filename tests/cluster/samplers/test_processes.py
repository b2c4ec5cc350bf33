"""Samplers as processes: killed in the middle of a turn, of new weights, and of a start.

Not here: what is said to a sampler (`test_samplers.py`).
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.samplers.runs import Harassed, sampled_by
from tests.cluster.workers.processes import descendants, left_after
from tests.cluster.workers.test_workers import TABLES, same_run, timing
from tests.small_runs import write_recipe
from turnwise.cluster.hiring import Hired
from turnwise.cluster.samplers.engine import SamplerEngine
from turnwise.config import load_recipe
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.training.run import run as run_stages

WORK = """import sys
from turnwise.cluster.samplers.sampler import work
work("127.0.0.1", int(sys.argv[1]), bytes.fromhex(sys.argv[2]))
"""


class Processes:
    """See Launcher. Starts processes of this machine; kills the first as soon as it is there, where
    that is asked for."""

    host = "127.0.0.1"

    def __init__(self, kill_first: bool = False) -> None:
        self.kill_first, self.starts = kill_first, 0

    async def has_room(self, index: int) -> bool:
        """See Launcher."""
        return True

    async def run(self, index: int, port: int, secret: bytes) -> str:
        """See Launcher."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORK, str(port), secret.hex()
        )
        self.starts += 1
        if self.kill_first and self.starts == 1:
            process.kill()
        try:
            return f"it ended with code {await process.wait()}"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def in_a_turn(engine: SamplerEngine) -> bool:
    """Whether an episode of RL has a turn under way."""
    turns = [turn for lane in engine._lanes for turn in lane.sessions.values() if turn is not None]
    return engine.version == 1 and bool(turns)


def in_weights(engine: SamplerEngine) -> bool:
    """Whether the weights after the first update are on their way."""
    return engine._weights is not None and engine._weights.version > engine.version


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Restorable", TABLES)


@pytest.fixture(scope="module")
def expected(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """The run with two samplers, none of which is killed."""
    folder = RunFolder.new(tmp_path_factory.mktemp("expected") / "run")
    return sampled_by(Harassed(), 2, recipe, folder)


async def killing(context: RunContext, moment: Callable[[SamplerEngine], bool]) -> None:
    """Run to the end, and kill a sampler once, when it is the moment."""
    engine = context.components.engine
    assert isinstance(engine, SamplerEngine)

    async def kill() -> None:
        while not moment(engine) or engine._lanes[0].link is None:
            await asyncio.sleep(0)
        (process,) = re.findall(r"process (\d+)", engine._lanes[0].link.name)
        os.kill(int(process), signal.SIGKILL)

    killer = asyncio.create_task(kill())
    await run_stages(context)
    await killer


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", [in_a_turn, *(pytest.param(m, marks=pytest.mark.slow) for m in (in_weights, None))]
)
def test_a_run_of_which_a_sampler_is_killed_is_the_run_of_which_none_is(
    recipe: Path,
    expected: RunContext,
    tmp_path: Path,
    moment: Callable[[SamplerEngine], bool] | None,
) -> None:
    before = descendants(os.getpid())
    launcher = Processes(kill_first=moment is None)
    loaded = load_recipe(str(recipe), ["cluster.samplers=2"])
    folder = RunFolder.new(tmp_path / "run")
    context = prepare(loaded, folder, SilentDisplay(), Hired(samplers=launcher))
    asyncio.run(run_stages(context) if moment is None else killing(context, moment))
    assert same_run(context, expected)
    assert launcher.starts == 3
    assert timing(context)["samplers/lost"] == (moment is not None)
    assert left_after(descendants(os.getpid()) - before, 20) == set()
