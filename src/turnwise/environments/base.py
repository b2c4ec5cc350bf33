"""The environment seam: tasks, a scene, tools, and a verdict.

A user's own environment is a class with `tasks`, some methods marked `@tool`, and `verify`. One
instance is one episode; the instance that a recipe builds is the prototype, and `fresh()` makes
one for each episode (a shallow copy: what the prototype loaded, an index or a table, is shared and
must not be changed).
"""

import copy
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from turnwise.environments.random_actions import random_script
from turnwise.errors import NotSupportedError, ToolError
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, tools_of
from turnwise.types import (
    Action,
    Observation,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Verdict,
)

Split = Literal["train", "heldout"]
Rewards = Literal["unknown", "shares", "signed"]


def cut_words(text: str, max_tokens: int) -> str:
    """The first `max_tokens` words of a text: what `Environment.truncate` does by default."""
    return " ".join(text.split()[:max_tokens])


@dataclass(frozen=True)
class EnvironmentSpec:
    """The facts that a report states about an environment. Example: EnvironmentSpec("search", "1",
    "ab12")."""

    name: str
    version: str
    data_hash: str = ""
    floors: dict[str, float] = field(default_factory=dict)
    """Success of trivial policies, where it is known: noop, random, oracle."""
    turn_rewards: bool = False
    """Whether its steps have rewards of their own."""
    rewards: Rewards = "unknown"
    """The rewards that there can be besides 0 and 1: numbers between them (`shares`), or any, also
    below 0 (`signed`); `unknown` where it is not stated."""


class Environment:
    """Base of all environments; every part but `tasks` and `verify` has a default."""

    tool_deadline: ClassVar[float] = 30.0
    """Seconds that one tool call may take."""

    truncate: Callable[[str, int], str] = staticmethod(cut_words)
    """Shorten a text to a number of tokens. Set by the rollout to the policy tokenizer's own count;
    until then a token is a word between spaces."""

    pictures: bool = False
    """Whether its observations have images, which the policy's model has to take."""

    same_splits: bool = False
    """Whether training and held-out tasks may be the same: episodes differ by luck alone."""

    weaknesses: Sequence[str] = ()
    """Known ways to deceive its verifier, in sentences; shown by `turnwise environments`."""

    verdict_programs: int = 1
    """Programs that a verdict runs in the environment's sandbox, if it has one, at most."""

    warnings: Sequence[str] = ()
    """Oddities of the data, in sentences; logged when a run begins."""

    @property
    def spec(self) -> EnvironmentSpec:
        """Name, version and data hash, for reports."""
        return EnvironmentSpec(name=type(self).__name__.lower(), version="0")

    @property
    def restorable(self) -> bool:
        """Whether an episode can go on from a snapshot; by default, whether both methods are
        there."""
        kind = type(self)
        return kind.snapshot != Environment.snapshot and kind.restore != Environment.restore

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in an order that is the same every time."""
        raise NotSupportedError(f"{type(self).__name__} has no tasks({split!r})")

    def fresh(self) -> Self:
        """A new instance for one episode; shares what the prototype loaded."""
        return copy.copy(self)

    def tools(self) -> list[Tool]:
        """The action space: the methods marked @tool, in alphabetical order."""
        return list(tools_of(self).values())

    async def reset(self, task: Task, seed: int) -> Observation:
        """Set the scene; returns the first message. `task` comes without its secret."""
        del seed
        return Observation(task.prompt, Source.USER)

    async def step(self, action: Action) -> Step:
        """React to a well-formed action. Default: an answer ends the episode; calls are run in
        order, each with its deadline, and their results are joined in that order."""
        if action.answer is not None:
            return Step(done=True)
        results = [await self._run(call) for call in action.calls]
        return Step(Observation("\n".join(result.content for result in results)), tuple(results))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Judge the finished episode. Look at `trajectory.answer` or `trajectory.written`: they
        hold what the model wrote; tool output is in `trajectory.observed` only."""
        raise NotSupportedError(f"{type(self).__name__} has no verify()")

    def oracle(self, task: Task) -> Sequence[Action]:
        """The actions of a perfect agent, for audits and demonstrations. `task` has its secret."""
        raise NotSupportedError(f"{type(self).__name__} has no oracle for {task.id}")

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """The actions of an agent that knows the tools and nothing else, drawn from `stream`;
        `task` comes without its secret. Default: some calls and an answer, with the prompt's
        words."""
        return random_script(self.tools(), task, stream)

    def floors(self) -> Mapping[str, "Environment"]:
        """Variants in which something needed is taken away; the trained policy is evaluated in
        each, to show that its success stands on it. Example: {"no_search": ...}."""
        return {}

    def snapshot(self) -> bytes:
        """The complete state of the episode."""
        raise NotSupportedError(f"{type(self).__name__} cannot be snapshotted")

    def restore(self, state: bytes) -> None:
        """Return to a state given by `snapshot`."""
        raise NotSupportedError(f"{type(self).__name__} cannot be restored ({len(state)} bytes)")

    def reseed(self, seed: int) -> None:
        """Draw from now on what is left to chance from another seed, after a `restore`. Nothing to
        do where nothing is."""
        del seed

    async def close(self) -> None:
        """Release what the episode holds. Idempotent, bounded."""

    def _callable(self) -> Mapping[str, Tool]:
        """The tools that a call may name."""
        return tools_of(self)

    async def _run(self, call: ToolCall) -> ToolResult:
        tools = self._callable()
        start = time.monotonic()
        try:
            if call.name not in tools:
                raise ToolError(f"there is no tool {call.name!r}; tools: {', '.join(tools)}")
            content = await tools[call.name](call.arguments, self.tool_deadline)
        except ToolError as error:
            return ToolResult(call, f"Error: {error}", False, time.monotonic() - start)
        return ToolResult(call, content, True, time.monotonic() - start)
