"""Changes of any environment that a recipe asks for: tools of one's own, slow ones, and rules.

    [environment]
    name = "search"
    tools = ["mine.py:convert"]
    latency = { mean = 1.0, spread = 1.25 }
    consequential = { write = 5, delete = "refuse", send_mail = "confirm" }

A tool of one's own is a function marked `@tool`, without a state: what has to be saved with an
episode belongs in an environment. With a latency each call waits before it is run, for as long as a
slow service would take: the logarithm of the seconds has a normal distribution, and a tool's
deadline does not count them. A rule names a tool, or what tools do that are marked with
`@consequential`: they write, send or delete.

For each change a class is derived anew from the environment's own, so that all else about it stays:
tasks, verdicts and oracle are those without it.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any, Literal, Self, TypeVar

from turnwise.config import LatencyConfig
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.errors import ConfigError, unknown_name
from turnwise.registry import Registry
from turnwise.rewards.parts import RewardPart
from turnwise.seeds import derive
from turnwise.tools.tool import Tool, is_tool
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

Own = TypeVar("Own", bound=Environment)
TOOLS: Registry[Callable[..., Any]] = Registry("tool", is_tool, "mark the function with @tool")


class Equipped(Environment):
    """Tools beside those of an environment's own class."""

    _added: Mapping[str, Tool]

    def tools(self) -> list[Tool]:
        return sorted([*super().tools(), *self._added.values()], key=lambda one: one.name)

    def ablations(self) -> Mapping[str, Environment]:
        """The environment's ablations, with the same tools."""
        found = super().ablations()
        return {name: one.under(Equipped, _added=self._added) for name, one in found.items()}


def equipped(environment: Own, names: Sequence[str]) -> Own:
    """The environment with further tools by name; itself where there are none. Raises ConfigError
    for a name that is no tool, and for a tool of a name that is there already."""
    if not names:
        return environment
    there = {tool.name for tool in environment.tools()}
    added: dict[str, Tool] = {}
    for name in names:
        tool = Tool.of(TOOLS.get(name))
        if tool.name in there or tool.name in added:
            raise ConfigError(
                f"environment.tools: {name} is called {tool.name!r}, as another tool of "
                f"{environment.spec.name}: give the function another name"
            )
        added[tool.name] = tool
    return environment.under(Equipped, _added=added)


class Slow(Environment):
    """Tools that take their time, to measure what waiting for them costs."""

    _latency: LatencyConfig
    _luck: random.Random

    async def reset(self, task: Task, seed: int) -> Observation:
        """Set the scene; the seed decides how long each call takes."""
        self._luck = random.Random(derive("tool latency", seed))
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        """Wait for as long as the calls take, one after the other, then run them."""
        await asyncio.sleep(sum(self._seconds() for _ in action.calls))
        return await super().step(action)

    def ablations(self) -> Mapping[str, Environment]:
        """The environment's ablations, whose tools are as slow."""
        found = super().ablations()
        return {name: one.under(Slow, _latency=self._latency) for name, one in found.items()}

    def _seconds(self) -> float:
        spread = self._latency.spread
        # The mean of a log-normal distribution is exp(middle + spread² / 2).
        return self._latency.mean * exp(self._luck.gauss(-(spread**2) / 2, spread))


def slow(environment: Own, latency: LatencyConfig | None) -> Own:
    """The environment with tools that take so long, if any. Raises ConfigError without tools."""
    if latency is None:
        return environment
    if not environment.tools():
        raise ConfigError(f"environment.latency: {environment.spec.name} has no tools that wait")
    return environment.under(Slow, _latency=latency)


Rule = Literal["allow", "confirm", "dry_run", "refuse"] | int
"""A number is how many calls of the tool may succeed in an episode."""
MOST = 10
"""The calls of an episode that count as 1: a share of all could be lowered by harmless ones."""
RULED = {
    "held_back": RewardPart(0, 1, f"calls that a rule held back, as a share of {MOST}, at most 1"),
    "consequential": RewardPart(
        0, 1, f"calls under a rule that went through and succeeded, as a share of {MOST}, at most 1"
    ),
}
"""The parts that rules add to verdicts."""


@dataclass
class _Book:
    """The rules of an environment, and what was called in this episode."""

    rules: Mapping[str, Rule]
    restorable: bool
    """Whether the environment is, without rules."""
    counts: dict[str, int] = field(default_factory=dict)
    """Calls that succeeded, by tool."""
    waiting: list[str] = field(default_factory=list)
    """The calls of the last turn under a rule that have to be made again."""
    held: int = 0
    """Calls that a rule held back."""
    through: int = 0
    """Calls under a rule that went through."""

    def rule(self, call: ToolCall) -> Rule:
        return self.rules.get(call.name, "allow")

    def held_back(self, call: ToolCall, asked: Sequence[str]) -> Step | None:
        """Why a call is not run; None if it is. `asked` were `waiting` before its turn."""
        rule = self.rule(call)
        told = f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=str)}"
        if rule == "refuse":
            return _told(call, f"Error: {call.name} is not permitted here", False)
        if rule == "dry_run":
            return _told(call, f"Dry run, nothing was done: {told}", True)
        if rule == "confirm" and told not in asked:
            self.waiting.append(told)
            return _told(call, f"Not done yet. To confirm, make the same call again: {told}", True)
        if isinstance(rule, int) and self.counts.get(call.name, 0) >= rule:
            return _told(call, f"Error: {call.name} may be used {rule} times only", False)
        return None


class Guarded(Environment):
    """Rules before an environment's own class; the verdict says besides how much they held back."""

    _book: _Book

    @property
    def spec(self) -> EnvironmentSpec:
        """The environment's spec; of its scores only `noop`, which no rule changes."""
        spec = super().spec
        scores = {name: share for name, share in spec.reference_scores.items() if name == "noop"}
        parts = {**spec.parts, **RULED}
        return replace(spec, reference_scores=scores, parts=parts)

    @property
    def restorable(self) -> bool:
        return self._book.restorable  # this class itself has both methods

    def fresh(self) -> Self:
        """A new episode: nothing was called yet."""
        made = super().fresh()
        made._book = _Book(self._book.rules, self._book.restorable)
        return made

    async def reset(self, task: Task, seed: int) -> Observation:
        """Set the scene; nothing was called yet."""
        self._book = _Book(self._book.rules, self._book.restorable)
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        """Run the calls that the rules let through, one by one; say why the others were not."""
        book = self._book
        if all(book.rule(call) == "allow" for call in action.calls):
            return await super().step(action)
        steps: list[Step] = []
        # A call is not confirmed by its own turn, which has not seen what it is asked.
        asked, book.waiting = book.waiting, []
        for call in action.calls:
            held = book.held_back(call, asked)
            if held is not None:
                book.held += 1
                steps.append(held)
                continue
            step = await super().step(replace(action, calls=(call,)))
            succeeded = all(result.ok for result in step.results)
            book.counts[call.name] = book.counts.get(call.name, 0) + succeeded
            book.through += succeeded and book.rule(call) != "allow"
            steps.append(step)
            if step.done or step.abort:
                break
        return joined(steps)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The environment's verdict, with the calls that rules held back, and let through."""
        verdict = await super().verify(trajectory)
        counts = {"held_back": self._book.held, "consequential": self._book.through}
        shares = {name: min(count / MOST, 1.0) for name, count in counts.items()}
        return replace(verdict, parts={**verdict.parts, **shares})

    def ablations(self) -> Mapping[str, Environment]:
        """The environment's ablations, under the same rules."""
        found = super().ablations()
        return {name: _under(variant, self._book.rules) for name, variant in found.items()}

    def snapshot(self) -> bytes:
        """The calls so far, and the environment's state."""
        book = self._book
        own: dict[str, Any] = {"counts": book.counts, "waiting": book.waiting}
        own |= {"held": book.held, "through": book.through}
        # JSON without indents has no line break: the first one ends it, whatever follows.
        return json.dumps(own, sort_keys=True).encode() + b"\n" + super().snapshot()

    def restore(self, state: bytes) -> None:
        own, _, rest = state.partition(b"\n")
        self._book = _Book(self._book.rules, self._book.restorable, **json.loads(own))
        super().restore(rest)


def _told(call: ToolCall, text: str, ok: bool) -> Step:
    return Step(Observation(text), (ToolResult(call, text, ok),))


def joined(steps: Sequence[Step]) -> Step:
    """Several steps as one."""
    observations = [step.observation for step in steps if step.observation is not None]
    rewards = [step.reward for step in steps if step.reward is not None]
    images = observations[-1].images if observations else ()
    text = "\n".join(one.content for one in observations)
    return Step(
        Observation(text, observations[0].source, images) if observations else None,
        tuple(result for step in steps for result in step.results),
        done=any(step.done for step in steps),
        abort=any(step.abort for step in steps),
        truncated=any(step.truncated for step in steps),
        forgets=any(step.forgets for step in steps),
        reward=sum(rewards) if rewards else None,
    )


def guarded(environment: Own, rules: Mapping[str, Any]) -> Own:
    """The environment under rules by a tool's name or a consequence; a name's rule comes before a
    consequence's. The environment itself if there are none. Raises ConfigError for a name that is
    neither, and for a number below 0."""
    if not rules:
        return environment
    tools = {tool.name: tool for tool in environment.tools()}
    consequences = {tool.consequence for tool in tools.values()} - {""}
    for name, rule in rules.items():
        if name not in tools and name not in consequences:
            raise unknown_name("tool or consequence", name, {*tools, *consequences})
        if isinstance(rule, int) and rule < 0:
            raise ConfigError(f"environment.consequential.{name} is {rule}: give 0 or more")
    by_tool = {
        name: rules.get(name, rules.get(tool.consequence, "allow")) for name, tool in tools.items()
    }
    return _under(environment, by_tool)


def _under(environment: Own, rules: Mapping[str, Rule]) -> Own:
    return environment.under(Guarded, _book=_Book(rules, environment.restorable))
