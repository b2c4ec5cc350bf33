"""Many episodes at once: every task `group_size` times, a bounded number of them under way.

Not here: what an episode does (episode.py), and which tasks are played (the trainer's business).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.config import RolloutConfig
from turnwise.engines.base import Engine
from turnwise.environments.base import Environment
from turnwise.errors import RunStoppedError
from turnwise.rollout.episode import Episode
from turnwise.rollout.seats import Seats
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.types import Branch, Group, Task, Trajectory

Progress = Callable[[Trajectory], None]


def group_name(label: str, task: Task) -> str:
    """Of a task's group on an occasion. Example: "train/12/hop1/tarfile"."""
    return f"{label}/{task.id}"


def new_member(task: Task, episode: int, seed: int, label: str) -> Trajectory:
    """One that is to be played from the beginning."""
    return Trajectory(task, group_name(label, task), episode, derive(seed, label, task.id, episode))


def new_groups(tasks: Sequence[Task], group_size: int, seed: int, label: str) -> list[Group]:
    """One for each task, to be played from the beginning."""
    return [
        Group(
            group_name(label, task), [new_member(task, n, seed, label) for n in range(group_size)]
        )
        for task in tasks
    ]


@dataclass(frozen=True)
class Roller:
    """What all episodes share. Example: `await Roller(...).collect(tasks, 8, seed, "train/3")`."""

    environment: Environment
    """The prototype: each episode gets a `fresh()` one."""
    scaffold: Scaffold
    engine: Engine
    limits: RolloutConfig
    seats: Seats
    """Episodes under way at once; shared with all that is played beside it."""
    occasion: int = 0
    """What is played beside it has another one; the lowest is seated first."""
    snapshots: bool = False
    """Whether to keep the environment's state before each turn, so that episodes can branch off."""

    async def collect(
        self,
        tasks: Sequence[Task],
        group_size: int,
        seed: int,
        label: str,
        progress: Progress | None = None,
    ) -> list[Group]:
        """Play every task `group_size` times; groups and members come in the order asked for.

        `label` names the occasion (such as "train/12"): together with the run's seed, the task and
        the episode it determines every random number of the episode.
        Raises RunStoppedError when more than `max_ungraded_share` of the episodes are ungraded.
        """
        groups = new_groups(tasks, group_size, seed, label)
        members = [member for group in groups for member in group.trajectories]
        await self.play([(member, None) for member in members], progress)
        return groups

    async def play(
        self,
        starts: Sequence[tuple[Trajectory, Branch | None]],
        progress: Progress | None = None,
    ) -> None:
        """Fill in every trajectory, from its beginning or from where it branches off.

        Raises RunStoppedError when more than `max_ungraded_share` of the episodes are ungraded.
        """
        await self.fill(starts, progress)
        self.check_ungraded([trajectory for trajectory, _ in starts])

    async def fill(
        self,
        starts: Sequence[tuple[Trajectory, Branch | None]],
        progress: Progress | None = None,
    ) -> None:
        """The same without counting the ungraded, for who plays in several rounds and counts them
        over all."""
        waiting = iter(enumerate(starts))

        async def worker() -> None:
            for index, (trajectory, start) in waiting:
                await self.play_one(index, trajectory, start)
                if progress is not None:
                    progress(trajectory)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self.seats.count, len(starts))):
                workers.create_task(worker())

    async def play_one(self, index: int, trajectory: Trajectory, start: Branch | None) -> None:
        """Fill in one trajectory as soon as there is a seat; `index` is its number among all that
        are played on the occasion at the same time."""
        session = f"{index:08d}-{self.occasion}"
        async with self.seats.taken(self.occasion):
            self.engine.open(session)
            episode = Episode(
                trajectory,
                self.environment,
                self.scaffold,
                self.engine,
                self.limits,
                session,
                start,
                self.snapshots,
            )
            try:
                await episode.run()
            finally:
                self.engine.close(session)

    def check_ungraded(self, trajectories: Sequence[Trajectory]) -> None:
        """Raise RunStoppedError when more than `max_ungraded_share` of them are ungraded."""
        ungraded = [member for member in trajectories if member.reward is None]
        if len(ungraded) <= self.limits.max_ungraded_share * len(trajectories):
            return
        outcomes = Counter(member.outcome for member in ungraded)
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        problem = next((member.problem for member in ungraded if member.problem), "no message")
        raise RunStoppedError(
            f"{len(ungraded)} of {len(trajectories)} episodes could not be graded ({counts}); "
            f"first: {problem}. rollout.max_ungraded_share allows {self.limits.max_ungraded_share}"
        )
