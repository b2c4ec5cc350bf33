"""Consequential tools under a recipe's rules: limited, run dry, confirmed or refused.

A tool that writes, sends or deletes is marked with `@consequential`. A rule names a tool, or what
marked tools do, and holds whatever the environment is:

    [environment]
    consequential = { write = 5, delete = "refuse", send_mail = "confirm" }

Not here: what the tools do, and what is right to do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal, Self

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.errors import ConfigError, unknown_name
from turnwise.tools.tool import Tool
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

Rule = Literal["allow", "confirm", "dry_run", "refuse"] | int
"""A number is how many calls of the tool may succeed in an episode."""


class Guarded(Environment):
    """Another environment, with rules for its tools. Same tasks, same verdicts."""

    def __init__(self, inner: Environment, rules: Mapping[str, Rule]) -> None:
        """`rules` by a tool's name or a consequence; a name's rule comes before a consequence's.

        Raises ConfigError for a name that is neither, and for a number below 0.
        """
        tools = {tool.name: tool for tool in inner.tools()}
        consequences = {tool.consequence for tool in tools.values()} - {""}
        for name, rule in rules.items():
            if name not in tools and name not in consequences:
                raise unknown_name("tool or consequence", name, {*tools, *consequences})
            if isinstance(rule, int) and rule < 0:
                raise ConfigError(f"environment.consequential.{name} is {rule}: give 0 or more")
        self.inner, self.pictures, self.same_splits = inner, inner.pictures, inner.same_splits
        self.task_set = inner.task_set
        self.warnings, self.weaknesses = inner.warnings, inner.weaknesses
        self.sandbox, self.verdict_programs = (
            getattr(inner, "sandbox", None),
            inner.verdict_programs,
        )
        self._rules = {
            name: rules.get(name, rules.get(tool.consequence, "allow"))
            for name, tool in tools.items()
        }
        self._counts: dict[str, int] = {}
        self._waiting = ""

    @property
    def spec(self) -> EnvironmentSpec:
        """The inner environment's spec; of its scores only `noop`, which no rule changes."""
        spec = self.inner.spec
        scores = {name: value for name, value in spec.reference_scores.items() if name == "noop"}
        return replace(spec, reference_scores=scores)

    @property
    def restorable(self) -> bool:
        """Whether the inner one is."""
        return self.inner.restorable

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.inner.tasks(split)

    def fresh(self) -> Self:
        """A new episode: nothing was called yet."""
        made = super().fresh()
        made.inner, made._counts, made._waiting = self.inner.fresh(), {}, ""
        return made

    def tools(self) -> list[Tool]:
        return self.inner.tools()

    async def reset(self, task: Task, seed: int) -> Observation:
        """Set the scene; nothing was called yet."""
        self._counts, self._waiting = {}, ""
        self.inner.truncate = self.truncate
        return await self.inner.reset(task, seed)

    async def step(self, action: Action) -> Step:
        """Run the calls that the rules let through, one by one; say why the others were not."""
        if all(self._rules.get(call.name, "allow") == "allow" for call in action.calls):
            return await self.inner.step(action)
        steps: list[Step] = []
        for call in action.calls:
            held = self._held_back(call)
            if held is not None:
                steps.append(held)
                continue
            step = await self.inner.step(replace(action, calls=(call,)))
            succeeded = all(result.ok for result in step.results)
            self._counts[call.name] = self._counts.get(call.name, 0) + succeeded
            steps.append(step)
            if step.done or step.abort:
                break
        return _joined(steps)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return await self.inner.verify(trajectory)

    def oracle(self, task: Task) -> Sequence[Action]:
        """The oracle of the environment without rules."""
        return self.inner.oracle(task)

    def random_actions(self, task: Task, stream: Random) -> Sequence[Action]:
        return self.inner.random_actions(task, stream)

    def ablations(self) -> Mapping[str, Environment]:
        """The inner environment's ablations, under the same rules."""
        return {name: self._around(inner) for name, inner in self.inner.ablations().items()}

    def snapshot(self) -> bytes:
        """The calls so far, and the inner environment's state."""
        own = {"counts": self._counts, "waiting": self._waiting}
        return json.dumps(own, sort_keys=True).encode() + b"\n" + self.inner.snapshot()

    def restore(self, state: bytes) -> None:
        own, _, inner = state.partition(b"\n")
        found = json.loads(own)
        self._counts, self._waiting = found["counts"], found["waiting"]
        self.inner.restore(inner)

    def reseed(self, seed: int) -> None:
        self.inner.reseed(seed)

    async def close(self) -> None:
        await self.inner.close()

    def _around(self, inner: Environment) -> "Guarded":
        made = super().fresh()
        made.inner = inner
        return made

    def _held_back(self, call: ToolCall) -> Step | None:
        """Why a call is not run; None if it is."""
        rule = self._rules.get(call.name, "allow")
        told = f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=str)}"
        confirmed, self._waiting = self._waiting == told, ""
        if rule == "refuse":
            return _told(call, f"Error: {call.name} is not permitted here", False)
        if rule == "dry_run":
            return _told(call, f"Dry run, nothing was done: {told}", True)
        if rule == "confirm" and not confirmed:
            self._waiting = told
            return _told(call, f"Not done yet. To confirm, make the same call again: {told}", True)
        if isinstance(rule, int) and self._counts.get(call.name, 0) >= rule:
            return _told(call, f"Error: {call.name} may be used {rule} times only", False)
        return None


def _told(call: ToolCall, text: str, ok: bool) -> Step:
    return Step(Observation(text), (ToolResult(call, text, ok),))


def _joined(steps: Sequence[Step]) -> Step:
    """Several steps as one."""
    observations = [step.observation for step in steps if step.observation is not None]
    rewards = [step.reward for step in steps if step.reward is not None]
    pictures = observations[-1].images if observations else ()
    text = "\n".join(one.content for one in observations)
    return Step(
        Observation(text, observations[0].source, pictures) if observations else None,
        tuple(result for step in steps for result in step.results),
        done=any(step.done for step in steps),
        abort=any(step.abort for step in steps),
        truncated=any(step.truncated for step in steps),
        reward=sum(rewards) if rewards else None,
    )


def guarded(environment: Environment, rules: Mapping[str, Any]) -> Environment:
    """The environment under these rules; the environment itself if no rule restricts it."""
    return Guarded(environment, rules) if rules else environment
