"""Tools that fail now and then, whatever the environment is, and what an agent makes of it.

A share of the tool calls is not run: the agent gets an error, or junk that looks like a result. The
class is derived anew for each environment, so that all else about it stays.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from turnwise.environments.base import Environment
from turnwise.environments.derived import joined
from turnwise.errors import ConfigError, unknown_name
from turnwise.evaluation.effort import successes
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Step, Task, ToolCall, ToolResult, Trajectory

Own = TypeVar("Own", bound=Environment)

NO_CALL = ToolCall("", {})
FAILURES: Mapping[str, ToolResult] = {
    "error": ToolResult(NO_CALL, "Error: the tool does not respond at the moment", False),
    "junk": ToolResult(NO_CALL, "%PDF-1.4 obj<</Length 0x7F3A>> ~~ NaN NaN }{ null"),
}
"""The result of a call that was made to fail, by kind of failure."""
REACTIONS = ("same_call", "same_tool", "other_tool", "answer", "none")
"""Reactions in the agent's next turn: the call again with the same arguments; another call of the
tool; a call of another tool; an answer; nothing that could be read, or no turn left."""


@dataclass(frozen=True)
class FailureRates:
    """The shares of tool calls that fail, each from 0 to 1, together at most 1."""

    error: float = 0.0
    junk: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "FailureRates":
        """Read `error=0.2,junk=0.1`. Raises ConfigError for anything else."""
        rates: dict[str, float] = {}
        for part in text.split(","):
            kind, _, share = (word.strip() for word in part.partition("="))
            if kind not in FAILURES:
                raise unknown_name("failure", kind, FAILURES)
            try:
                rates[kind] = float(share)
            except ValueError:
                raise ConfigError(f"{kind}={share}: give a share, as in {kind}=0.2") from None
        if not all(0 <= rate <= 1 for rate in rates.values()) or not 0 < sum(rates.values()) <= 1:
            raise ConfigError(f"{text}: give shares from 0 to 1, together above 0 and at most 1")
        return cls(**rates)


class Failing(Environment):
    """An environment of which a share of the tool calls fails; `failing` derives one from it and
    another class, whose tasks, verdicts and oracle it has."""

    _rates: FailureRates
    _luck: random.Random

    async def reset(self, task: Task, seed: int) -> Observation:
        """The seed decides which calls fail."""
        self._luck = random.Random(derive("tool failures", seed))
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        failures = [self._failure() for _ in action.calls]
        if not any(failures):
            return await super().step(action)
        steps: list[Step] = []
        for call, failure in zip(action.calls, failures, strict=True):
            if failure is not None:
                steps.append(Step(Observation(failure.content), (replace(failure, call=call),)))
            else:
                steps.append(await super().step(replace(action, calls=(call,))))
            if steps[-1].done or steps[-1].abort:
                break
        return joined(steps)

    def _failure(self) -> ToolResult | None:
        drawn = self._luck.random()
        if drawn < self._rates.error:
            return FAILURES["error"]
        return FAILURES["junk"] if drawn < self._rates.error + self._rates.junk else None


def failing(environment: Own, rates: FailureRates) -> Own:
    """The environment with tools that fail at these rates. Raises ConfigError where it has none."""
    if not environment.tools():
        raise ConfigError(f"environment {environment.spec.name} has no tools that could fail")
    return environment.under(Failing, _rates=rates)


def recovery(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """The figures of episodes with failures among them: `failures` by kind; `reactions`, the share
    of failures followed by each, and `tried_again`, by the first two; graded `episodes` with a
    failure and their `success`. Shares are None of nothing."""
    kinds: Counter[str] = Counter()
    reactions: Counter[str] = Counter()
    struck = []
    for trajectory in trajectories:
        failed = _failed(trajectory)
        kinds.update(kind for _, _, kind in failed)
        reactions.update(_reaction(trajectory, turn, call) for turn, call, _ in failed)
        if failed and trajectory.outcome.graded:
            struck.append(trajectory)
    total = sum(kinds.values())
    shares = {name: reactions[name] / total if total else None for name in REACTIONS}
    again = reactions["same_call"] + reactions["same_tool"]
    return {
        "failures": {kind: kinds[kind] for kind in FAILURES},
        "reactions": shares,
        "tried_again": again / total if total else None,
        "episodes": len(struck),
        "success": len(successes(struck)) / len(struck) if struck else None,
    }


def _failed(trajectory: Trajectory) -> list[tuple[int, ToolCall, str]]:
    """Calls that were made to fail: turn, call, kind of failure."""
    return [
        (number, result.call, kind)
        for number, turn in enumerate(trajectory.turns)
        for result in (turn.step.results if turn.step is not None else ())
        for kind, failure in FAILURES.items()
        if (result.content, result.ok) == (failure.content, failure.ok)
    ]


def _reaction(trajectory: Trajectory, turn: int, call: ToolCall) -> str:
    if turn + 1 == len(trajectory.turns):
        return "none"
    action = trajectory.turns[turn + 1].action
    if any((one.name, one.arguments) == (call.name, call.arguments) for one in action.calls):
        return "same_call"
    if any(one.name == call.name for one in action.calls):
        return "same_tool"
    if action.calls:
        return "other_tool"
    return "answer" if action.answer is not None else "none"
