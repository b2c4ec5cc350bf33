"""The offer of a server: an environment's tasks, under limits, to a bounded number of clients.

Each client has a `Session`, with one episode at a time. What a client does wrong is a ToolError,
which every protocol can tell it. Not here: protocols (`mcp.py`, `openenv.py`).
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment, Split
from turnwise.errors import ConfigError, ToolError
from turnwise.rollout.runner import within
from turnwise.seeds import derive
from turnwise.types import Action, Outcome, Task, Trajectory
from turnwise_environments.serving.outside import OutsideEpisode, Reply, detail_of

LIMITS = RolloutConfig(max_turns=100, max_tool_calls=100)
"""The limits of an episode where no recipe sets any; each task's budget may lower them."""


def _nothing(line: str) -> None:
    pass


@dataclass
class Offer:
    """An environment to be served. Example: `Offer(make_environment("mathematics", {}))`."""

    environment: Environment
    """The prototype."""
    limits: RolloutConfig = LIMITS
    sessions: int = 16
    """The most episodes that may be under way."""
    patience: float = 600.0
    """Seconds of a client's silence after which its episode is given up, ungraded."""
    say: Callable[[str], None] = _nothing
    """Called with a line for the person who serves: the reason why an episode has no grade."""
    _begun: list[OutsideEpisode] = field(default_factory=list, init=False, repr=False)

    @property
    def under_way(self) -> int:
        """The number of episodes that are under way."""
        self._begun = [one for one in self._begun if one.running]
        return len(self._begun)

    def count(self, split: Split) -> int:
        """The number of tasks of a split."""
        return len(self.environment.tasks(split))

    def task(self, number: int, split: str) -> Task:
        """A task by its number, from 0. Raises ToolError where there is none."""
        for known in get_args(Split):
            if split == known:
                tasks = self.environment.tasks(known)
                if 0 <= number < len(tasks):
                    return tasks[number]
                raise ToolError(
                    f"there is no task {number}: split {split} has {len(tasks)}, numbered from 0"
                )
        raise ToolError(f"there is no split {split!r}: write {' or '.join(get_args(Split))}")

    async def begin(self, task: Task, seed: int) -> tuple[OutsideEpisode, Reply]:
        """Begin an episode. Raises ToolError where too many are under way."""
        if self.under_way >= self.sessions:
            raise ToolError(f"{self.sessions} episodes are under way, no more may be: try later")
        episode = OutsideEpisode(
            planned=Trajectory(task, f"served/{task.id}", 0, derive(seed, "served", task.id)),
            prototype=self.environment,
            limits=within(self.limits, self.environment.budget(task)),
            patience=self.patience,
            progress=self._ended,
        )
        self._begun.append(episode)
        return episode, await episode.begin()

    def _ended(self, played: Trajectory) -> None:
        if played.reward is None and played.outcome is not Outcome.CANCELLED:
            self.say(f"task {played.task.id}: {played.outcome}: {played.problem}")

    async def close(self) -> None:
        """Give up all episodes under way."""
        for episode in self._begun:
            await episode.close()


class Session:
    """One client's: at most one episode at a time."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._episode: OutsideEpisode | None = None
        self.steps = 0
        """Actions of the present episode."""

    @property
    def running(self) -> bool:
        """Whether an episode is under way."""
        return self._episode is not None and self._episode.running

    @property
    def trajectory(self) -> Trajectory | None:
        """The present episode, or the one before that has ended."""
        return None if self._episode is None else self._episode.trajectory

    async def begin(self, number: int, split: str, seed: int) -> Reply:
        """Begin an episode; one that is under way is given up. Raises ToolError for a task that is
        not there, and where too many episodes are under way."""
        task = self._offer.task(number, split)
        await self.close()
        self._episode, self.steps = None, 0
        self._episode, reply = await self._offer.begin(task, seed)
        return reply

    async def act(self, action: Action) -> Reply:
        """Take an action. Raises ToolError before the first episode, and when one is over."""
        if self._episode is None:
            raise ToolError("no episode has begun: begin one first")
        self.steps += 1
        return await self._episode.act(action)

    async def close(self) -> None:
        """Give up the episode under way, if there is one."""
        if self._episode is not None:
            await self._episode.close()


def verdict_of(ended: Trajectory) -> dict[str, Any]:
    """The fields that a client gets of an episode that is over, as plain data. Of one without a
    grade these are the outcome alone: a message of an error may hold anything."""
    told: dict[str, Any] = {"outcome": str(ended.outcome), "graded": ended.reward is not None}
    verdict = ended.verdict
    if verdict is None or ended.reward is None:
        return told
    return told | {
        "reward": ended.reward,
        "success": verdict.success,
        "detail": detail_of(ended),
        "parts": dict(verdict.parts),
    }


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_servable(environment: Environment, images: bool) -> None:
    """Raise ConfigError for an environment that shows images where the protocol has none, and for
    a sandbox that cannot be had."""
    if environment.shows_images and not images:
        raise ConfigError(
            f"environment {environment.spec.name} shows images, and OpenEnv's observations are "
            'words here: serve it with --mcp, or set its option observations to "text"'
        )
    if environment.sandbox is not None:
        environment.sandbox.find_tier()
