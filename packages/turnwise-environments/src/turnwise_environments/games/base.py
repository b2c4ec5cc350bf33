"""The base of the text games: moves as tool calls, an end that the game itself decides, snapshots.

A game is small on purpose: its exact values are known, so that an estimator of credit can be held
against them.
"""

import json
import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.environments.base import Environment
from turnwise.environments.turn_parts import results_of, share
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.tool import tools_of
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.progress import changes_of, progress_part

DIRECTIONS = ("left", "down", "right", "up")
"""Directions in gymnasium's order, so that an index is its action."""
RANDOM_MOVES = 100
PARTS = {"won": share("whether the game was won")}
WAY_PARTS = {
    **PARTS,
    "progress": progress_part("change of the share of the way to the goal that lies behind"),
}
"""The parts of games in which a view shows how far the goal is (`Game._to_go`)."""


@dataclass
class Play:
    """The state of one episode, all of it: plain data, so that it can be saved."""

    scene: Any = None
    """The game's own state: a position, a board."""
    moves: int = 0
    reward: float = 0.0
    """Reward of all moves so far."""
    over: bool = False
    won: bool = False
    seed: int = 0
    """Chance is drawn from it and the number of moves: the same after a restore."""
    task: dict[str, Any] = field(default_factory=dict)


class Game(Environment):
    """Base of the text games: a subclass says how to begin, how a move goes, and how it looks."""

    _play: Play

    @abstractmethod
    def _begin(self, task: Task) -> Any:
        """The scene of a task."""

    @abstractmethod
    def _look(self) -> str:
        """The scene as the agent sees it."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self._play = Play(scene=self._begin(task), seed=seed, task=dict(task.data))
        return Observation(f"{task.prompt}\n{self._look()}", Source.USER)

    async def step(self, action: Action) -> Step:
        """Moves, in order, until the game is over. An answer gives up."""
        if action.answer is not None:
            return Step(done=True, abort=True, reward=0.0)
        before = self._play.reward
        results = [await self._run(call) for call in action.calls if not self._play.over]
        reward = self._play.reward - before
        content = "\n".join(result.content for result in results)
        return Step(Observation(content), tuple(results), self._play.over, reward=reward)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success as the game saw it. The rewards of moves are in the turns."""
        won, parts = self._play.won, {"won": float(self._play.won)}
        turns = {"progress": self._progress(trajectory)} if "progress" in self.spec.parts else {}
        detail = f"{self._play.moves} moves"
        return Verdict(self._outcome_reward(), won, parts, detail, turns)

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        (tool,) = tools_of(self).values()  # without those that a recipe adds
        (name,) = tool.schema["parameters"]["required"]
        return [
            Action("", calls=(ToolCall(tool.name, {name: stream.choice(self._moves(task))}),))
            for _ in range(RANDOM_MOVES)
        ]

    def snapshot(self) -> bytes:
        return json.dumps(vars(self._play)).encode()

    def restore(self, state: bytes) -> None:
        self._play = Play(**json.loads(state))

    def reseed(self, seed: int) -> None:
        self._play.seed = seed

    def _moves(self, task: Task) -> Sequence[str]:
        """The moves that its one tool takes."""
        del task
        return DIRECTIONS

    def _to_go(self, task: Task, view: str) -> float | None:
        """The distance from the goal in a view, infinite where the game is lost; None where it
        shows none."""
        del task, view
        return None

    def _progress(self, trajectory: Trajectory) -> list[float]:
        """The change in each turn of the share of the first distance that lies behind."""
        task, start = trajectory.task, self.fresh()
        start._play = Play(scene=self._begin(task), task=dict(task.data))
        whole, now, shares = self._to_go(task, start._look()), 0.0, []
        assert whole  # no game begins at its goal
        for turn in trajectory.turns:
            for result in results_of(turn):
                left = self._to_go(task, result.content)
                now = now if left is None else max(0.0, 1 - left / whole)
            shares.append(now)
        return changes_of(shares)

    def _outcome_reward(self) -> float:
        return 0.0

    def _chance(self) -> float:
        """A number of [0, 1) for the move that is being made."""
        return derive(self._play.seed, "move", self._play.moves) / 2**63
