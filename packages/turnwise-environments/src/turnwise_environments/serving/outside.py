"""An episode whose policy is a client outside of this process: it is given actions one by one.

The loop is the one that every episode has (`rollout/loop.py`): the same limits, deadlines, outcomes
and verdicts. Not here: protocols, and how many episodes there may be.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.errors import ToolError
from turnwise.rollout.loop import EpisodeEnded, EpisodeLoop
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Outcome, Step, Trajectory

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
        """Whether it has begun and is not over."""
        return self._task is not None and not self._task.done()

    async def begin(self) -> Reply:
        """Reset the environment. The reply has `ended` where that failed."""
        async with self._turn:
            self._task = asyncio.create_task(self.run())
            self._task.add_done_callback(lambda _: self._waits.set())
            await self._waits.wait()
            return self._reply()

    async def act(self, action: Action) -> Reply:
        """Take one action; those of one client are taken one after the other, as they come.

        Raises ToolError when the episode is over.
        """
        async with self._turn:
            await self._waits.wait()  # a caller that was cancelled has left its action behind
            if not self.running:
                raise ToolError("the episode is over: begin another one")
            self._waits.clear()
            self._actions.put_nowait(action)
            await self._waits.wait()
            return self._reply()

    async def close(self) -> None:
        """Give the episode up, and release what its environment holds. Idempotent, bounded."""
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
        """Nothing: a reply is made when the loop waits again, or has ended."""

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
            word = rf"(?<!\w){re.escape(line.strip())}(?!\w)"
            if line.strip() and re.search(word, detail) and not re.search(word, known):
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
