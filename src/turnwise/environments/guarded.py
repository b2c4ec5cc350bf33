"""Consequential tools under a recipe's rules: limited, run dry, confirmed or refused.

A tool that writes, sends or deletes is marked with `@consequential`. A rule names a tool, or what
marked tools do, and holds whatever the environment is:

    [environment]
    consequential = { write = 5, delete = "refuse", send_mail = "confirm" }

The class is derived anew for each environment, so that all else about it stays. Not here: what the
tools do, and what is right to do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar, cast

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.errors import ConfigError, unknown_name
from turnwise.rewards.parts import RewardPart
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
Own = TypeVar("Own", bound=Environment)
MOST = 10
"""The calls of an episode that count as 1. A share of all of them could be lowered by harmless
ones."""
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
    waiting: str = ""
    """The call that has to be made again."""
    held: int = 0
    """Calls that a rule held back."""
    through: int = 0
    """Calls under a rule that went through."""

    def rule(self, call: ToolCall) -> Rule:
        """The rule for a call."""
        return self.rules.get(call.name, "allow")

    def held_back(self, call: ToolCall) -> Step | None:
        """Why a call is not run; None if it is."""
        rule = self.rule(call)
        told = f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=str)}"
        confirmed, self.waiting = self.waiting == told, ""
        if rule == "refuse":
            return _told(call, f"Error: {call.name} is not permitted here", False)
        if rule == "dry_run":
            return _told(call, f"Dry run, nothing was done: {told}", True)
        if rule == "confirm" and not confirmed:
            self.waiting = told
            return _told(call, f"Not done yet. To confirm, make the same call again: {told}", True)
        if isinstance(rule, int) and self.counts.get(call.name, 0) >= rule:
            return _told(call, f"Error: {call.name} may be used {rule} times only", False)
        return None


class Guarded(Environment):
    """Rules before an environment's own class, from which `guarded` derives one together with this.
    Tasks and oracle are those without rules; the verdict says besides how much they held back."""

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
        return self._book.restorable

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
        for call in action.calls:
            held = book.held_back(call)
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
        reward=sum(rewards) if rewards else None,
    )


def guarded(environment: Own, rules: Mapping[str, Any]) -> Own:
    """The environment under rules by a tool's name or a consequence; a name's rule comes before a
    consequence's. The environment itself if there are none.

    Raises ConfigError for a name that is neither, and for a number below 0.
    """
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
    made = environment.under(Guarded)
    made._book = _Book(rules, environment.restorable)
    return cast(Own, made)
