"""Many episodes at once: every task `group_size` times, a bounded number of them under way.

Next: `rollout/loop.py`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from turnwise.config import Recipe, RolloutConfig
from turnwise.engines.base import Engine
from turnwise.environments.base import Budget, Environment
from turnwise.errors import RunStoppedError
from turnwise.rewards.composition import Reward
from turnwise.rollout.episode import Episode
from turnwise.rollout.loop import EpisodeLoop
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.types import Branch, Group, Task, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Progress = Callable[[Trajectory], None]


class Player(Protocol):
    """Plays episodes in place of turnwise's own loop, for a wing's section (`wings.py`)."""

    @abstractmethod
    def episode(self, **parts: Any) -> Episode:
        """An episode of the given parts, which are those of `Episode`."""

    async def freeze(self, model: "PreTrainedModel") -> None:
        """Take the weights with which RL begins, for roles that keep them."""
        return

    def compared(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups whose members are compared with each other: whole episodes by default."""
        return groups

    def check(self, groups: Sequence[Group]) -> None:
        """Raise RunStoppedError where the groups of a step are not fit to learn from."""
        return

    async def stop(self) -> None:
        """End what goes on in the background. Idempotent."""
        return


class Workers(Player, Protocol):
    """The processes that play episodes in place of this one. An episode's parts have `variant` too,
    the name of the ablation that its environment is, if any."""

    @abstractmethod
    def set_up(
        self, recipe: Recipe, tokenizer: "PreTrainedTokenizerBase", environment: Environment
    ) -> None:
        """Say what they play. Comes before `start`."""

    @abstractmethod
    async def start(self) -> None:
        """Wait until all are ready. Raises UserError for what a process cannot work with, and
        RunStoppedError where one does not start."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Counts of what was lost, since this process began."""


def group_names(label: str, tasks: Sequence[Task]) -> list[str]:
    """The name of each task's group, as "train/12/hop1/tarfile"; "#2" where one comes again."""
    names: dict[str, None] = {}  # a set with an order
    again: Counter[str] = Counter()
    for task in tasks:
        name = f"{label}/{task.id}"
        # More than once where a task's own id ends with such a number.
        while name in names:
            again[task.id] += 1
            name = f"{label}/{task.id}#{again[task.id] + 1}"
        names[name] = None
    return list(names)


def new_member(task: Task, group: str, episode: int, seed: int, label: str) -> Trajectory:
    name = group.removeprefix(f"{label}/")  # the task's, with a number where it comes again
    # By name and not by place: other tasks beside it do not change its episodes.
    return Trajectory(task, group, episode, derive(seed, label, name, episode))


def new_groups(tasks: Sequence[Task], group_size: int, seed: int, label: str) -> list[Group]:
    """Plan a group for each task."""
    return [
        Group(name, tuple(new_member(task, name, n, seed, label) for n in range(group_size)))
        for task, name in zip(tasks, group_names(label, tasks), strict=True)
    ]


class Runner(ABC):
    """The parts that all episodes of a rollout share, whatever the policy is."""

    environment: Environment
    limits: RolloutConfig
    reward: Reward | None
    weights: Mapping[str, float]

    @abstractmethod
    def episode(self, index: int, planned: Trajectory, start: Branch | None = None) -> EpisodeLoop:
        """The agent loop of a trajectory, the `index`th that is played with this priority."""

    async def collect(
        self, tasks: Sequence[Task], group_size: int, seed: int, label: str
    ) -> list[Group]:
        """Play every task `group_size` times; groups and members come in the order asked for.

        `label` names the occasion, as "train/12": with the run's seed, the task and the episode it
        determines every random number. Raises RunStoppedError when more than `max_ungraded_share`
        of the episodes are ungraded.
        """
        # Not by `play_groups`: the way to the agent loop stays two calls shorter.
        groups = new_groups(tasks, group_size, seed, label)
        running: list[asyncio.Task[Trajectory]] = []
        async with asyncio.TaskGroup() as episodes:
            for planned in members_of(groups):
                running.append(episodes.create_task(self.episode(len(running), planned).run()))
        played = [task.result() for task in running]
        self.check_ungraded(played)
        return _filled(groups, played)

    async def play_groups(self, groups: Sequence[Group]) -> list[Group]:
        """Play every member from the beginning; the ungraded are not counted."""
        return _filled(groups, await self.play([(one, None) for one in members_of(groups)]))

    async def play(self, starts: Sequence[tuple[Trajectory, Branch | None]]) -> list[Trajectory]:
        """Play what is planned, from its beginning or branch; the ungraded are not counted."""
        async with asyncio.TaskGroup() as episodes:
            running = [
                episodes.create_task(self.episode(index, planned, start).run())
                for index, (planned, start) in enumerate(starts)
            ]
        return [task.result() for task in running]

    async def judge(self, groups: Sequence[Group]) -> list[Group]:
        """Add what the reward measures of groups. Raises RunStoppedError for too many ungraded."""
        if self.reward is None or not self.reward.of_groups:
            return list(groups)
        judged = await self.reward.judge_groups(groups, self.weights, self.limits.max_seconds)
        self.check_ungraded(members_of(judged))
        return judged

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


@dataclass(frozen=True)
class RolloutRunner(Runner):
    """Rollouts whose policy is an engine's model."""

    environment: Environment
    """The prototype: each episode gets a `fresh()` one."""
    scaffold: Scaffold
    engine: Engine
    limits: RolloutConfig
    semaphore: PrioritySemaphore
    """Bounds the episodes under way; shared with everything that is played at the same time."""
    priority: int = 0
    """Rollouts at the same time have different ones; the lowest is served first."""
    snapshots: bool = False
    """Whether to keep the environment's state before each turn, so that episodes can branch off."""
    progress: Progress | None = None
    """Called with each finished trajectory."""
    reward: Reward | None = None
    """The reward in place of the environment's own."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weights of the reward's parts."""
    player: Player | None = None
    """Plays the episodes in place of turnwise's loop: an agent of the user's own."""
    workers: Workers | None = None
    """The processes that play the episodes, in place of this one."""
    variant: str = ""
    """The name of the ablation that the environment is, if any."""

    def episode(self, index: int, planned: Trajectory, start: Branch | None = None) -> Episode:
        return self._kind(
            planned=planned,
            prototype=self.environment,
            limits=within(self.limits, self.environment.budget(planned.task)),
            progress=self.progress,
            reward=self.reward,
            weights=self.weights,
            scaffold=self.scaffold,
            engine=self.engine,
            # Lockstep admits sessions by names: with zeros these sort as numbers.
            session=f"{index:08d}-{self.priority}",
            semaphore=self.semaphore,
            priority=self.priority,
            start=start,
            snapshots=self.snapshots,
        )

    @property
    def _kind(self) -> Callable[..., Episode]:
        if self.player is not None:
            return self.player.episode
        if self.workers is not None:
            return partial(self.workers.episode, variant=self.variant)
        return Episode


def within(limits: RolloutConfig, budget: Budget) -> RolloutConfig:
    """The limits, lowered to what a task's budget allows."""
    given = {name: most for name, most in budget._asdict().items() if most is not None}
    lowered = {name: min(most, getattr(limits, name)) for name, most in given.items()}
    return limits.model_copy(update=lowered)


def members_of(groups: Sequence[Group]) -> list[Trajectory]:
    """The trajectories of all groups, in order."""
    return [member for group in groups for member in group.trajectories]


def _filled(groups: Sequence[Group], played: Sequence[Trajectory]) -> list[Group]:
    """The groups with what was played in place of what was planned, in the same order."""
    rest = iter(played)
    return [
        replace(group, trajectories=tuple(next(rest) for _ in group.trajectories))
        for group in groups
    ]
