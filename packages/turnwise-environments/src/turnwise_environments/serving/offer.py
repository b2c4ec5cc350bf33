"""The offer of a server: an environment's tasks, under limits, to a bounded number of clients.

Each client has a `Session`, with one episode at a time, whose policy is the client: it is given
actions one by one. The loop is the one that every episode has (`rollout/loop.py`): the same limits,
deadlines, outcomes and verdicts. What a client does wrong is a ToolError, which every protocol can
tell it.
"""

import asyncio
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment, Split
from turnwise.errors import ConfigError, ToolError
from turnwise.rollout.loop import EpisodeEnded, EpisodeLoop
from turnwise.rollout.runner import within
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Outcome, Step, Task, Trajectory

CLOSE_SECONDS = 10.0
"""The most that an episode's action under way may still take when its client has gone."""


@dataclass(frozen=True)
class Reply:
    """The reply to a reset or an action."""

    observation: Observation
    ok: bool = True
    """False where a tool call was the client's mistake."""
    reward: float | None = None
    """The step's own; with the last one, what else the episode earned is added."""
    ended: Trajectory | None = None
    """The whole episode, when it is over."""


@dataclass(kw_only=True)
class OutsideEpisode(EpisodeLoop):
    """Example: `await episode.begin()`, then `await episode.act(action)` until `reply.ended`."""

    patience: float = 600.0
    """Seconds without an action after which the episode is given up, ungraded."""
    _actions: asyncio.Queue[Action | None] = field(default_factory=asyncio.Queue, init=False)
    _waits: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while the loop waits for an action, and when it has ended."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _task: "asyncio.Task[Trajectory] | None" = field(default=None, init=False)
    _shown: Observation = field(
        default_factory=lambda: Observation("", Source.ENVIRONMENT), init=False
    )
    _paid: float = field(default=0.0, init=False)

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def begin(self) -> Reply:
        """Reset the environment. The reply has `ended` where that failed."""
        async with self._turn:
            self._task = asyncio.create_task(self.run())
            self._task.add_done_callback(lambda _: self._waits.set())
            await self._waits.wait()
            return self._reply()

    async def act(self, action: Action) -> Reply:
        """Take one action; they are taken one after the other. Raises ToolError when it is over."""
        async with self._turn:
            await self._waits.wait()  # a caller that was cancelled has left its action behind
            if not self.running:
                raise ToolError("the episode is over: begin another one")
            self._waits.clear()
            self._actions.put_nowait(action)
            await self._waits.wait()
            return self._reply()

    async def close(self) -> None:
        """Give the episode up. Idempotent, bounded."""
        if self._task is None or self._task.done():
            return
        self._actions.put_nowait(None)
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)

    async def _begin(self) -> None:
        self._shown = await self._reset()

    async def _act(self, turn: int) -> Action:
        self._check_time()
        self._waits.set()
        try:
            async with asyncio.timeout(self.patience):
                action = await self._actions.get()
        except TimeoutError:
            silent = f"the client was silent for {self.patience:g} s"
            raise EpisodeEnded(Outcome.CANCELLED, silent) from None
        if action is None:
            raise EpisodeEnded(Outcome.CANCELLED, "the client has gone")
        return action

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        """A reply is made when the loop waits again, or has ended."""

    def _reply(self) -> Reply:
        assert self._task is not None  # begun
        ended = self._task.result() if self._task.done() else None
        step = self.turns[-1].step if self.turns else None
        if step is None:
            shown = self._shown if not self.turns else Observation("", Source.ENVIRONMENT)
            return Reply(shown, reward=self._earned(None, ended), ended=ended)
        shown = step.observation or Observation("", Source.ENVIRONMENT)
        ok = all(result.ok for result in step.results)
        return Reply(shown, ok, self._earned(step.reward, ended), ended)

    def _earned(self, reward: float | None, ended: Trajectory | None) -> float | None:
        """The reward to hand out now, so that all of them together are the episode's."""
        if ended is not None:
            reward = None if ended.reward is None else ended.reward - self._paid
        self._paid += reward or 0.0
        return reward


def detail_of(trajectory: Trajectory) -> str:
    """The verdict's detail; "" where it tells something of the task's secret that the client has
    neither written nor been shown."""
    detail = trajectory.verdict.detail if trajectory.verdict is not None else ""
    arguments = (str(call.arguments) for turn in trajectory.turns for call in turn.action.calls)
    answers = (turn.action.answer or "" for turn in trajectory.turns)
    known = "\n".join([trajectory.prompt, *arguments, *answers, *trajectory.observed])
    for leaf in _leaves(trajectory.task.secret):
        for line in str(leaf).splitlines():
            # A file of tests is one long line: a pattern of that length takes seconds.
            if not line.strip() or line.strip() not in detail:
                continue
            word = rf"(?<!\w){re.escape(line.strip())}(?!\w)"
            if re.search(word, detail) and not re.search(word, known):
                return ""
    return detail


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        for one in value:
            yield from _leaves(one)
    elif value is not None and not isinstance(value, bool):
        yield value


LIMITS = RolloutConfig(max_turns=100, max_tool_calls=100)
"""The limits of an episode where no recipe sets any; each task's budget may lower them."""


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
    say: Callable[[str], None] = lambda line: None
    """Called with a line for the person who serves: the reason why an episode has no grade."""
    _begun: list[OutsideEpisode] = field(default_factory=list, init=False, repr=False)

    @property
    def under_way(self) -> int:
        self._begun = [one for one in self._begun if one.running]
        return len(self._begun)

    def count(self, split: Split) -> int:
        return len(self.environment.tasks(split))

    def task(self, number: int, split: Split) -> Task:
        """Raises ToolError where there is none."""
        tasks = self.environment.tasks(split)
        if not 0 <= number < len(tasks):
            raise ToolError(
                f"there is no task {number}: split {split} has {len(tasks)}, numbered from 0"
            )
        return tasks[number]

    def episode(self, task: Task, seed: int) -> OutsideEpisode:
        """An episode to begin at once. Raises ToolError where too many are under way."""
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
        return episode

    def _ended(self, played: Trajectory) -> None:
        if played.reward is None and played.outcome is not Outcome.CANCELLED:
            self.say(f"task {played.task.id}: {played.outcome}: {played.problem}")

    async def close(self) -> None:
        for episode in self._begun:
            await episode.close()


class Session:
    """One client's: at most one episode at a time."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._episode: OutsideEpisode | None = None
        self._beginning = asyncio.Lock()
        self.steps = 0
        """Actions of the present episode."""

    @property
    def running(self) -> bool:
        return self._episode is not None and self._episode.running

    @property
    def trajectory(self) -> Trajectory | None:
        """The present episode, or the one before that has ended."""
        return None if self._episode is None else self._episode.trajectory

    async def begin(self, number: int, split: Split, seed: int) -> Reply:
        """Begin an episode; one that is under way is given up. Raises ToolError."""
        task = self._offer.task(number, split)
        async with self._beginning:  # of two at once the first would be lost, and run on
            await self.close()
            self._episode, self.steps = None, 0
            # Known before it has begun: if the caller goes away meanwhile, `close` ends it.
            self._episode = self._offer.episode(task, seed)
            return await self._episode.begin()

    async def act(self, action: Action) -> Reply:
        """Raises ToolError before the first episode, and when one is over."""
        if self._episode is None:
            raise ToolError("no episode has begun: begin one first")
        self.steps += 1
        return await self._episode.act(action)

    async def close(self) -> None:
        if self._episode is not None:
            await self._episode.close()


def verdict_of(ended: Trajectory) -> dict[str, Any]:
    """The fields that a client gets of an episode that is over. Of one without a grade these are
    the outcome alone: a message of an error may hold anything."""
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
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_servable(environment: Environment, images: bool) -> None:
    """Raise ConfigError for images where the protocol has none, and for a sandbox that cannot be
    had."""
    if environment.shows_images and not images:
        raise ConfigError(
            f"environment {environment.spec.name} shows images, and OpenEnv's observations are "
            'words here: serve it with --mcp, or set its option observations to "text"'
        )
    if environment.sandbox is not None:
        environment.sandbox.find_tier()
