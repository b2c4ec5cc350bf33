"""The loop without a model: what becomes of an environment whose episode is cancelled."""

import asyncio

from tests.fakes import Capitals
from turnwise.config import RolloutConfig
from turnwise.rollout.loop import EpisodeLoop
from turnwise.types import Action, Observation, Outcome, Step, Trajectory


class Closing(Capitals):
    """Counts how often it is closed, over all episodes."""

    closed = 0

    async def close(self) -> None:
        type(self).closed += 1


class Silent(EpisodeLoop):
    """Its policy never acts."""

    async def _begin(self) -> None:
        await self._reset()

    async def _act(self, turn: int) -> Action:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None: ...


def test_a_cancelled_episode_closes_its_environment() -> None:
    async def work() -> Silent:
        prototype = Closing()
        planned = Trajectory(prototype.tasks("train")[0], "g", 0, seed=1)
        episode = Silent(planned=planned, prototype=prototype, limits=RolloutConfig())
        task = asyncio.create_task(episode.run())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return episode

    before = Closing.closed
    episode = asyncio.run(work())
    assert Closing.closed == before + 1
    assert episode.trajectory.outcome is Outcome.CANCELLED
