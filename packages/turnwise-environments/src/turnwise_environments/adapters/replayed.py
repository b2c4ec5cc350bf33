"""The common part of adapters to games: one tool, `act`; a state that lists all actions so far.

Another's game need not be made of plain data, so a snapshot is the list of what was done, and to
restore is to begin again and do it again, when the next action comes. A replay that shows something
else is an InfrastructureError.
"""

import json
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turnwise.environments.base import Environment
from turnwise.environments.turn_parts import share
from turnwise.errors import InfrastructureError
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, in_thread
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict

RANDOM_ACTIONS = 100
PARTS = {"won": share("whether the game was won"), "over": share("whether it came to its end")}


@dataclass(frozen=True)
class Reply:
    """A game's reply to one action."""

    shown: str
    reward: float = 0.0
    over: bool = False
    truncated: bool = False
    """It is over because of a limit of its own."""
    won: bool = False


@dataclass
class Played:
    """One episode so far, as plain data."""

    task: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    done: list[Any] = field(default_factory=list)
    """Each action, a string; or a number, a seed that chance was drawn from since then."""
    shown: str = ""
    reward: float = 0.0
    over: bool = False
    truncated: bool = False
    won: bool = False


class Replayed(Environment):
    """A game with one tool that takes one string. A subclass has `_begin`, which makes `_game`, and
    `_do`; both may block, and run in a thread."""

    _played: Played
    _game: Any = None
    """The game, between `_begin` and `_end`."""
    _turn_rewards: bool = True
    """Whether the game's rewards are those of the turns; else the verdict's is 1 if it is won."""
    _live: bool = False
    """Whether the game stands where `_played` does; not after a restore."""

    @abstractmethod
    def _begin(self, task: Task, seed: int) -> str:
        """Make a game; gives what it shows."""

    @abstractmethod
    def _do(self, action: str) -> Reply:
        """Act in it. Raises ToolError for an action that the game does not know."""

    def _end(self) -> None:
        """Release the game, if there is one."""
        if self._game is not None:
            self._game.close()
            self._game = None

    def _reseed(self, seed: int) -> None:
        """Draw chance from another seed, where there is any."""
        del seed

    @abstractmethod
    def _tool(self) -> Tool:
        """The one tool, made by `_act_tool`."""

    def _act_tool(self, function: Callable[[str], str], description: str, **argument: Any) -> Tool:
        """The tool, whose function takes one argument, with its schema by name."""
        parameters = {
            "type": "object",
            "properties": argument,
            "required": [*argument],
            "additionalProperties": False,
        }
        schema = {"name": "act", "description": description, "parameters": parameters}
        return Tool("act", description, schema, function)

    def tools(self) -> list[Tool]:
        return [self._tool()]

    def act(self, action: str) -> str:
        """Act in the game, which is brought to where it was if need be."""
        if not self._live:
            self._replay()
        reply, played = self._do(action), self._played
        played.done.append(action)
        played.shown, played.reward = reply.shown, played.reward + reply.reward
        played.over, played.truncated, played.won = reply.over, reply.truncated, reply.won
        return reply.shown

    async def reset(self, task: Task, seed: int) -> Observation:
        await self.close()
        shown = await in_thread(lambda: self._begin(task, seed))
        self._played, self._live = Played(dict(task.data), seed, shown=shown), True
        return Observation(f"{task.prompt}\n{shown}".strip(), Source.USER)

    async def step(self, action: Action) -> Step:
        """Act, in order, until the game is over. An answer gives up."""
        if action.answer is not None:
            return Step(done=True, abort=True)
        played = self._played
        before = played.reward
        results = [await self._run(call) for call in action.calls if not played.over]
        return Step(
            Observation("\n".join(result.content for result in results)),
            tuple(results),
            done=played.over,
            truncated=played.truncated,
            reward=played.reward - before if self._turn_rewards else None,
        )

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success as the game saw it."""
        played = self._played
        parts = {"won": float(played.won), "over": float(played.over)}
        detail = f"{len(played.done)} actions, return {played.reward:g}"
        reward = 0.0 if self._turn_rewards else float(played.won)
        return Verdict(reward, played.won, parts, detail)

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        del task
        tool = self._tool()
        ((name, schema),) = tool.schema["parameters"]["properties"].items()
        return [
            Action("", calls=(ToolCall(tool.name, {name: stream.choice(schema["enum"])}),))
            for _ in range(RANDOM_ACTIONS)
        ]

    def snapshot(self) -> bytes:
        return json.dumps(vars(self._played)).encode()

    def restore(self, state: bytes) -> None:
        self._played, self._live = Played(**json.loads(state)), False

    def reseed(self, seed: int) -> None:
        self._played.done.append(seed)
        if self._live:
            self._reseed(seed)

    async def close(self) -> None:
        self._live = False
        await in_thread(self._end)

    def _replay(self) -> None:
        wanted = self._played
        shown = self._begin(Task("", "", data=wanted.task), wanted.seed)
        reached = replace(wanted, reward=0.0)
        for done in wanted.done:
            if isinstance(done, int):
                self._reseed(done)
                continue
            reply = self._do(done)
            shown, reached.reward = reply.shown, reached.reward + reply.reward
        reached.shown = shown
        if reached != wanted:
            raise InfrastructureError(
                f"{self.spec.name}: the same actions led to something else: it cannot be restored"
            )
        self._live = True
