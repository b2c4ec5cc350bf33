"""Attempts: episodes of a policy that needs no model, through the loop that training uses.

So what an attack earns here is what a policy would be paid, and a verifier that raises, hangs or
returns no number leaves the attempt ungraded, as it leaves an episode.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.rollout.loop import LATE, EpisodeLoop
from turnwise.rollout.runner import within
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Step, Task, Trajectory

Policy = Callable[[Trajectory], Action | None]
"""A function from the episode so far, its first message included, to the next action; None when it
is done: then it answers nothing until the episode ends."""

Move = Action | Callable[[Trajectory], Action]
"""An action, or a function that makes it of what was seen."""
Script = tuple[Action, ...]

Played = Coroutine[Any, Any, list[Trajectory]]
Run = Callable[[Played], list[Trajectory]]
"""Runs a coroutine to its end, as `asyncio.run`."""

NOTHING = Action("", answer="")

LIMITS = RolloutConfig(max_turns=1000, max_tool_calls=5000, max_seconds=30.0)


@dataclass(kw_only=True)
class Attempt(EpisodeLoop):
    """An episode whose policy is a function."""

    policy: Policy

    async def _begin(self) -> None:
        await self._reset()

    async def _act(self, turn: int) -> Action:
        self._check_time()
        return self.policy(self.trajectory) or NOTHING

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        """Nothing: the policy reads the trajectory."""


def attempts(
    prototype: Environment,
    tasks: Sequence[Task],
    policy: Policy,
    seed: int = 0,
    limits: RolloutConfig = LIMITS,
    until: float = math.inf,
    run: Run = asyncio.run,
) -> list[Trajectory]:
    """Play each task once, one after the other, and judge it; none is begun after the moment
    `until` of `time.monotonic()`. The same seed gives the same episodes where the environment is
    deterministic."""

    async def work() -> list[Trajectory]:
        return [
            await Attempt(
                planned=Trajectory(task, "audit", 0, derive("audit", task.id, seed)),
                prototype=prototype,
                limits=within(limits, prototype.budget(task)),
                policy=policy,
            ).run()
            for task in tasks
            if time.monotonic() < until
        ]

    return run(work())


def scripted(moves: Sequence[Move]) -> Policy:
    """A policy that makes these moves in order; after the last one it is done."""

    def policy(trajectory: Trajectory) -> Action | None:
        turn = len(trajectory.turns)
        if turn >= len(moves):
            return None
        move = moves[turn]
        return move if isinstance(move, Action) else move(trajectory)

    return policy


def graded(trajectories: Sequence[Trajectory]) -> Iterator[Trajectory]:
    """The trajectories that have a verdict."""
    return (one for one in trajectories if one.verdict is not None)


def in_time(trajectories: Sequence[Trajectory]) -> Iterator[Trajectory]:
    """The graded ones that no clock ended: of a script that says how busy its machine was."""
    return (one for one in graded(trajectories) if one.outcome not in LATE)


def succeeded(one: Trajectory) -> bool:
    return one.verdict is not None and bool(one.verdict.success)


def described(script: Script, most: int = 300) -> str:
    """A script in a line, cut where it is long."""
    said = "; ".join(map(_described, script)) or "nothing at all"
    return said if len(said) <= most else f"{said[:most]}… ({len(script)} actions)"


def _described(action: Action) -> str:
    calls = [
        f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
        for call in action.calls
    ]
    return " and ".join(calls) or f"answer {action.answer!r}"
