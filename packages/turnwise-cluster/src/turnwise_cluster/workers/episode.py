"""Episodes that are played in another process, while their tokens are sampled here.

The place, the engine's session and the deadline of a turn are this process's; environment, tools
and verifier are the other's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Sampling
from turnwise.rollout.episode import Episode
from turnwise.types import Branch, Trajectory

if TYPE_CHECKING:
    from turnwise_cluster.workers.pool import WorkerPool


@dataclass(frozen=True)
class Assignment:
    """An episode for another process to play: plain data.

    Example: `await workers.play(Assignment(planned, limits, {}, None, False, ""), sample, keep)`.
    """

    planned: Trajectory
    """Its task, with the secret, which the verifier needs; its group, number and seed."""
    limits: RolloutConfig
    weights: Mapping[str, float]
    """The weights of the reward's parts."""
    start: Branch | None
    """The moment of another episode to begin from; None is the beginning."""
    snapshots: bool
    """Whether to keep the environment's state before each turn."""
    variant: str
    """The name of the ablation of the environment; empty for the recipe's own."""


Sample = Callable[[Sequence[int], Sampling], Awaitable[Completion]]
"""Samples after a prompt; raises EpisodeEnded where the engine fails."""


@dataclass(kw_only=True)
class RemoteEpisode(Episode):
    """One run of the loop in another process. Example: `await runner.episode(0, planned).run()`."""

    workers: "WorkerPool"
    variant: str = ""
    """The name of the ablation that `prototype` is; empty for the recipe's own environment."""
    _cut: bool = field(default=False, init=False)

    @property
    def trajectory(self) -> Trajectory:
        return replace(super().trajectory, answer_cut=self._cut)

    async def run(self) -> Trajectory:
        async with self._place():
            assignment = Assignment(
                self.planned, self.limits, self.weights, self.start, self.snapshots, self.variant
            )
            await self.workers.play(assignment, self._ask, self._take)
        if self.progress is not None:
            self.progress(self.trajectory)
        return self.trajectory

    def _take(self, played: Trajectory) -> None:
        """Keep what was played, as if it had been played here."""
        self.tokens, self.turns = replace(played.tokens), list(played.turns)  # read-only again
        self.first = played.first
        self.environment_states = list(played.snapshots)
        self.outcome, self.verdict = played.outcome, played.verdict
        self.seconds, self.problem = played.seconds, played.problem
        self.times, self._cut = played.times, played.answer_cut
