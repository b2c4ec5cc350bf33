"""The environment seam: tasks, a scene, tools, and a verdict.

A user's own environment is a class with `tasks`, some methods marked `@tool`, and `verify`. One
instance is one episode; the instance that a recipe builds is the prototype, and `fresh()` makes
one for each episode (a shallow copy: what the prototype loaded, an index or a table, is shared and
must not be changed).

Next: `tools/tool.py`.
"""

import copy
import functools
import inspect
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

from turnwise.conflicts import Claim, Need
from turnwise.environments.random_actions import random_script
from turnwise.environments.tasksets import Split as Split
from turnwise.environments.tasksets import TaskSet, checked_tasks
from turnwise.errors import ConfigError, NotSupportedError, ToolError
from turnwise.rewards.parts import RewardPart
from turnwise.sandbox.base import CodeSandbox
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

Variant = TypeVar("Variant", bound="Environment")
Rewards = Literal["unknown", "shares", "signed"]
AWAITED = ("reset", "step", "verify", "close")
"""Methods of an environment that are awaited; a plain one is made so (`__init_subclass__`)."""
CALLED = (
    *("claims", "tasks", "budget", "fresh", "tools", "oracle", "random_actions", "ablations"),
    *("snapshot", "restore", "reseed"),
)
"""Methods of an environment that are called without `await`."""


def cut_words(text: str, max_tokens: int) -> str:
    """The first `max_tokens` words of a text: what `Environment.truncate` does by default."""
    return " ".join(text.split()[:max_tokens])


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment's facts for reports. Example: EnvironmentSpec("search", "1", "ab12")."""

    name: str
    version: str
    data_hash: str = ""
    reference_scores: Mapping[str, float] = field(default_factory=dict)
    """Success, 0 to 1, of simple policies, where it is known: noop, random, oracle."""
    turn_rewards: bool = False
    """Whether its steps have rewards of their own."""
    rewards: Rewards = "unknown"
    """The rewards that there can be besides 0 and 1: numbers between them (`shares`), or any, also
    below 0 (`signed`); `unknown` where it is not stated."""
    parts: Mapping[str, RewardPart] = field(default_factory=dict)
    """The numbers that its verdicts report of an episode and of its turns, by name."""


class Budget(NamedTuple):
    """Bounds of one task's episode below the recipe's `rollout`. Example: Budget(max_turns=3)."""

    max_turns: int | None = None
    max_turn_tokens: int | None = None
    max_tokens: int | None = None
    max_tool_calls: int | None = None


class Environment:
    """Base of all environments; every part but `tasks` and `verify` has a default.

    What is `async def` here may be `def` in an environment that has nothing to wait for.

    >>> class Door(Environment):
    ...     def tasks(self, split):
    ...         return [Task("one", "Say the word."), Task("two", "Say it again.")]
    ...
    ...     async def verify(self, trajectory):
    ...         said = trajectory.answer == "sesame"
    ...         return Verdict(reward=float(said), success=said)
    """

    facts: EnvironmentSpec | None = None
    """The spec without what the tasks say (data hash, reference scores); by default the class's
    name in lower case, and version 0."""

    task_set: TaskSet = TaskSet()
    """The tasks, for environments that do not override `tasks`."""

    tool_deadline: ClassVar[float] = 30.0
    """Seconds that one tool call may take."""

    truncate: Callable[[str, int], str] = staticmethod(cut_words)
    """Shorten a text to a number of tokens, for tools whose results may be long: nothing here calls
    it. Set by the rollout to the policy tokenizer's own count; until then a token is a word."""

    shows_images: bool = False
    """Whether its observations have images, which the policy's model has to take."""

    same_splits: bool = False
    """Whether training and held-out tasks may be the same: episodes differ by luck alone."""

    weaknesses: Sequence[str] = ()
    """Known ways to deceive its verifier, in sentences; shown by `turnwise environments`."""

    sandbox: CodeSandbox | None = None
    """The sandbox in which it runs code, if it has one: checked before a run begins."""

    folder: Path | None = None
    """The folder of an episode, after `reset`, in which an agent of the user's own works, where it
    is a program. None is the run's own."""

    verdict_programs: int = 1
    """Programs that a verdict runs in the environment's sandbox, if it has one, at most."""

    stateless: bool = False
    """Whether an episode has no state but its conversation: then a snapshot is empty."""

    warnings: Sequence[str] = ()
    """Oddities besides those of the task set, in sentences; logged when a run begins."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Make plain methods awaitable where they are awaited, and have its tasks checked. Raises
        ConfigError for an `async def` where nothing waits, and for other arguments than here."""
        super().__init_subclass__(**options)
        for name in (*AWAITED, *CALLED):
            _check_arguments(cls, name)
            # Inherited ones too: a mixin that is no Environment has not been through this.
            found = inspect.getattr_static(cls, name)
            waits = inspect.iscoroutinefunction(found)
            if name in AWAITED and inspect.isfunction(found) and not waits:
                setattr(cls, name, _awaitable(found))
            if name in CALLED and waits:
                raise ConfigError(f"{cls.__name__}.{name} is `async def`, not awaited: write `def`")
        # Of its own class alone: a method that is inherited has been through this.
        if inspect.isfunction(vars(cls).get("tasks")):
            setattr(cls, "tasks", _checking(vars(cls)["tasks"]))  # noqa: B010 - mypy sees a method

    @property
    def spec(self) -> EnvironmentSpec:
        """Name, version, data hash and reference scores, for reports."""
        facts = self.facts or EnvironmentSpec(type(self).__name__.lower(), "0")
        return replace(
            facts, data_hash=self.task_set.digest, reference_scores=self.task_set.reference_scores
        )

    def claims(self) -> Iterator[Claim]:
        """The needs of the environment, and what it denies a recipe; one's own may yield more."""
        setting = f"environment {self.spec.name}"
        if not self.restorable:
            yield Claim(setting, denies={Need.RESTORABLE: "has no snapshot() and restore()"})
        if self.shows_images:
            words = {Need.WORDS: "shows images"}
            yield Claim(setting, (Need.IMAGES,), words, "have it tell what is to be seen in words")

    @property
    def restorable(self) -> bool:
        """Whether episodes go on from a snapshot: they are stateless, or have both methods."""
        kind = type(self)
        both = kind.snapshot != Environment.snapshot and kind.restore != Environment.restore
        return self.stateless or both

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in an order that is the same every time."""
        if not self.task_set.tasks:
            raise NotSupportedError(f"{type(self).__name__} has no tasks({split!r})")
        return self.task_set.tasks[split]

    def budget(self, task: Task) -> Budget:
        """The bounds of a task's episode where it has some of its own. Default: the recipe's."""
        del task
        return Budget()

    def fresh(self) -> Self:
        """A new instance for one episode; shares what the prototype loaded."""
        return copy.copy(self)

    def tools(self) -> list[Tool]:
        """The action space, all that a call may name: the methods marked @tool, sorted by name."""
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
        """Judge the finished episode by `trajectory.answer` or `trajectory.written`, what the model
        wrote; tool output is in `trajectory.observed`."""
        raise NotSupportedError(f"{type(self).__name__} has no verify()")

    def oracle(self, task: Task) -> Sequence[Action]:
        """The actions of a perfect agent, for audits and demonstrations. `task` has its secret."""
        raise NotSupportedError(f"{type(self).__name__} has no oracle for {task.id}")

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """The actions of an agent that knows the tools and nothing else, drawn from `stream`;
        `task` comes without its secret. Default: calls and an answer, with the prompt's words."""
        return random_script(self.tools(), task, stream)

    def ablations(self) -> Mapping[str, "Environment"]:
        """Variants in which something needed is taken away, to evaluate the trained policy in.
        Example: {"no_search": self.variant(NoSearch)}."""
        return {}

    def variant(self, kind: type[Variant]) -> Variant:
        """This environment's data in a class derived from its own."""
        made = kind.__new__(kind)  # no constructor, which would load the data again
        vars(made).update(vars(self))
        return made

    def under(self, kind: type["Environment"], **data: Any) -> Self:
        """This environment's data, and more, in a class derived from `kind` and its own."""
        own = type(self)
        # An ablation may be made of a class that is derived from `kind` already.
        derived = own if issubclass(own, kind) else type(own.__name__, (kind, own), {})
        made = self.variant(cast(type[Self], derived))
        vars(made).update(data)
        return made

    def snapshot(self) -> bytes:
        """The complete state of the episode."""
        if not self.stateless:
            raise NotSupportedError(f"{type(self).__name__} cannot be snapshotted")
        return b""

    def restore(self, state: bytes) -> None:
        """Return to a state of `snapshot`. Raises ValueError for what it cannot have given."""
        if not self.stateless:
            raise NotSupportedError(
                f"{type(self).__name__} cannot be restored ({len(state)} bytes)"
            )
        if state:
            raise ValueError(f"not a snapshot of {self.spec.name}: {len(state)} bytes")

    def reseed(self, seed: int) -> None:
        """Draw from now on what is left to chance, if anything, from another seed."""
        del seed

    async def close(self) -> None:
        """Release what the episode holds. Idempotent, bounded."""

    async def _run(self, call: ToolCall) -> ToolResult:
        tools = {one.name: one for one in self.tools()}
        start = time.monotonic()
        try:
            if call.name not in tools:
                raise ToolError(f"there is no tool {call.name!r}; tools: {', '.join(tools)}")
            content = await tools[call.name](call.arguments, self.tool_deadline)
        except ToolError as error:
            return ToolResult(call, f"Error: {error}", False, time.monotonic() - start)
        return ToolResult(call, content, True, time.monotonic() - start)


def _check_arguments(kind: type, name: str) -> None:
    own = vars(kind).get(name)
    if inspect.isfunction(own):
        names = [*inspect.signature(getattr(Environment, name)).parameters]
        try:
            # By number: they are given by position, whatever a subclass calls them.
            inspect.signature(own).bind(*names)
        except TypeError:
            raise ConfigError(f"{kind.__name__}.{name} has to take ({', '.join(names)})") from None


def _awaitable(method: Callable[..., Any]) -> Callable[..., Any]:
    """A plain method as one that is awaited; it may return what is awaited in its turn."""

    @functools.wraps(method)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        found = method(*arguments, **named)
        return await found if inspect.isawaitable(found) else found

    return awaited


def _checking(tasks: Callable[..., Any]) -> Callable[..., Sequence[Task]]:
    @functools.wraps(tasks)
    def checking(self: Environment, *arguments: Any, **named: Any) -> Sequence[Task]:
        return checked_tasks(tasks(self, *arguments, **named), f"{type(self).__name__}.tasks")

    return checking
