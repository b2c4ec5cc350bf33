"""An episode whose reset or verdict is another process's than its turns.

    reset ─> snapshot │ restore ─> turns ─> snapshot │ restore ─> verdict

Each part is a loop of its own, after which the environment's state goes on to the next one as plain
data. Not here: which process does which part (`cluster/workers/divided.py`), and an episode that
one process plays (`episode.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from turnwise.environments.base import Part
from turnwise.rollout.episode import Episode
from turnwise.rollout.loop import EpisodeEnded
from turnwise.types import Observation, Outcome, Trajectory

EpisodePart = Part | Literal["play"]


@dataclass(frozen=True)
class Left:
    """The state of an episode between two of its parts."""

    state: bytes
    """The environment's."""
    observation: Observation | None = None
    """The first message, after a reset."""


@dataclass(kw_only=True)
class DividedEpisode(Episode):
    """One part of an episode. Example: `await episode.run()`, then `episode.left`."""

    received: Left | None = None
    """The state after the part before, if there was one."""
    elsewhere: Collection[EpisodePart] = ()
    """The parts that other processes do."""
    left: Left | None = field(default=None, init=False)
    """The state with which the next part begins; None where there is none."""

    async def _scene(self) -> Observation | None:
        """Make the environment of a part that is not the first: it can be restored."""
        if "reset" not in self.elsewhere:
            return await super()._reset()
        self._environment = self._fresh()
        return None


@dataclass(kw_only=True)
class ResetPart(DividedEpisode):
    """The reset of an episode."""

    async def _begin(self) -> None:
        observation = await self._reset()
        self.left = Left(await self._snapshot(), observation)
        raise EpisodeEnded(Outcome.CANCELLED)  # it is over here; others play it


@dataclass(kw_only=True)
class PlayPart(DividedEpisode):
    """The turns of an episode, with a reset and a verdict where these are not done elsewhere."""

    async def _reset(self) -> Observation:
        prompt = await self._scene()
        if self.received is not None:
            self.first = prompt = self.received.observation
            await self._restore(self.received.state)
        return prompt or Observation("")  # a branch begins with what was said before

    async def _grade(self) -> None:
        if "verify" not in self.elsewhere:
            await super()._grade()
        elif self.outcome.graded:
            try:
                self.left = Left(await self._snapshot())
            except EpisodeEnded as end:
                self.outcome, self.problem = Outcome.GRADER_ERROR, end.problem


@dataclass(kw_only=True)
class VerdictPart(DividedEpisode):
    """The verdict on an episode: `planned` is what was played, `received` how it was left."""

    @property
    def trajectory(self) -> Trajectory:
        """The episode with its verdict."""
        return replace(
            self.planned,
            outcome=self.outcome,
            verdict=self.verdict,
            problem=self.problem,
            seconds=self.seconds,
            times=self.times,
        )

    async def _begin(self) -> None:
        assert self.received is not None  # an episode without a state has no verdict
        try:
            await self._scene()
            await self._restore(self.received.state)
        except EpisodeEnded as end:
            raise EpisodeEnded(Outcome.GRADER_ERROR, end.problem) from end
        raise EpisodeEnded(self.planned.outcome, self.planned.problem)


PARTS: Mapping[EpisodePart, type[DividedEpisode]] = {
    "reset": ResetPart,
    "play": PlayPart,
    "verify": VerdictPart,
}
"""The parts of an episode, in their order."""
LOST: Mapping[EpisodePart, Outcome] = {
    "reset": Outcome.INFRASTRUCTURE_RESET,
    "play": Outcome.INFRASTRUCTURE_STEP,
    "verify": Outcome.GRADER_ERROR,
}
"""The outcome of an episode whose processes are lost in a part."""
