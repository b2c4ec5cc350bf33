"""Tools that fail now and then, whatever the environment is, to measure what an agent makes of it.

A share of the tool calls is not run: the agent gets an error, or junk that looks like a result. The
class is derived anew for each environment, so that all else about it stays. Not here: the agent's
reactions (`recovery.py`), and rules for consequential tools (`guarded.py`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from turnwise.environments.base import Environment
from turnwise.environments.guarded import joined
from turnwise.errors import ConfigError, unknown_name
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Step, Task, ToolCall, ToolResult

Own = TypeVar("Own", bound=Environment)

FAILURES: Mapping[str, ToolResult] = {
    kind: ToolResult(ToolCall("", {}), content, ok)
    for kind, content, ok in (
        ("error", "Error: the tool does not respond at the moment", False),
        ("junk", "%PDF-1.4 obj<</Length 0x7F3A>> ~~ NaN NaN }{ null", True),
    )
}
"""The result of a call that was made to fail, by kind of failure."""


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
    """An environment of which a share of the tool calls fails; `failing` derives one from another
    class together with this. Tasks, verdicts and oracle are those of the other."""

    _rates: FailureRates
    _luck: random.Random

    async def reset(self, task: Task, seed: int) -> Observation:
        """Set the scene; the seed decides which calls fail."""
        self._luck = random.Random(derive("tool failures", seed))
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        """Run the calls that do not fail, one by one where some do."""
        failures = [self._failure() for _ in action.calls]
        if not any(failures):
            return await super().step(action)
        steps: list[Step] = []
        for call, failure in zip(action.calls, failures, strict=True):
            if failure is not None:
                result = replace(failure, call=call)
                steps.append(Step(Observation(result.content), (result,)))
                continue
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
    made = environment.under(Failing)
    made._rates = rates
    return cast(Own, made)
