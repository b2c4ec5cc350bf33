"""Many episodes at once: every task `group_size` times, a bounded number of them under way.

Not here: what an episode does (episode.py), and which tasks are played (the trainer's business).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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


def group_names(label: str, tasks: Sequence[Task]) -> list[str]:
    """The name of each task's group on an occasion, such as "train/12/hop1/tarfile"; a task that
    comes again has a number after it, "train/12/hop1/tarfile#2", so that no two are the same."""
    names: list[str] = []
    for task in tasks:
        name, again = f"{label}/{task.id}", 1
        while name in names:
            again += 1
            name = f"{label}/{task.id}#{again}"
        names.append(name)
    return names


def new_member(task: Task, group: str, episode: int, seed: int, label: str) -> Trajectory:
    """One that is to be played from the beginning."""
    return Trajectory(task, group, episode, derive(seed, label, task.id, episode))


def new_groups(tasks: Sequence[Task], group_size: int, seed: int, label: str) -> list[Group]:
    """One for each task, to be played from the beginning."""
    return [
        Group(name, tuple(new_member(task, name, n, seed, label) for n in range(group_size)))
        for task, name in zip(tasks, group_names(label, tasks), strict=True)
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
        groups = await self.play_groups(groups, progress)
        self.check_ungraded([member for group in groups for member in group.trajectories])
        return groups

    async def play_groups(
        self, groups: Sequence[Group], progress: Progress | None = None
    ) -> list[Group]:
        """Play every member from the beginning; the ungraded are not counted."""
        planned = [(member, None) for group in groups for member in group.trajectories]
        played = iter(await self.play(planned, progress))
        return [
            replace(group, trajectories=tuple(next(played) for _ in group.trajectories))
            for group in groups
        ]

    async def play(
        self,
        starts: Sequence[tuple[Trajectory, Branch | None]],
        progress: Progress | None = None,
    ) -> list[Trajectory]:
        """Play what is planned, from its beginning or from where it branches off, and return it in
        the same order; the ungraded are not counted."""
        waiting = iter(enumerate(starts))
        played: dict[int, Trajectory] = {}

        async def worker() -> None:
            for index, (planned, start) in waiting:
                played[index] = await self.play_one(self.episode(index, planned, start))
                if progress is not None:
                    progress(played[index])

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self.seats.count, len(starts))):
                workers.create_task(worker())
        return [played[index] for index in range(len(starts))]

    def episode(self, index: int, planned: Trajectory, start: Branch | None = None) -> Episode:
        """What plays one trajectory; `index` is its number among all that are played on the
        occasion at the same time."""
        return Episode(
            planned,
            self.environment,
            self.scaffold,
            self.engine,
            self.limits,
            f"{index:08d}-{self.occasion}",
            start,
            self.snapshots,
        )

    async def play_one(self, episode: Episode) -> Trajectory:
        """Play one episode as soon as there is a seat."""
        async with self.seats.taken(self.occasion):
            self.engine.open(episode.session)
            try:
                return await episode.run()
            finally:
                self.engine.close(episode.session)

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
