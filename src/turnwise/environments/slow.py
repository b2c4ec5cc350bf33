"""Tools that take their time, whatever the environment is, to measure what waiting for them costs.

    [environment]
    latency = { mean = 1.0, spread = 1.25 }

Each call waits before it is run, for as long as a slow service would take: the logarithm of the
seconds has a normal distribution. The class is derived anew for each environment, so that all else
about it stays. Not here: work that keeps the processor busy, and a tool's deadline, which the wait
does not count towards.
"""

import asyncio
import random
from collections.abc import Mapping
from math import exp
from typing import TypeVar, cast

from turnwise.config import LatencyConfig
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Step, Task

Own = TypeVar("Own", bound=Environment)


class Slow(Environment):
    """An environment with slow tools; `slow` derives one from another class together with this.
    Tasks, verdicts and oracle are those of the other."""

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
        return {name: _under(variant, self._latency) for name, variant in found.items()}

    def _seconds(self) -> float:
        spread = self._latency.spread
        # The mean of a log-normal distribution is exp(middle + spread² / 2).
        return self._latency.mean * exp(self._luck.gauss(-(spread**2) / 2, spread))


def slow(environment: Own, latency: LatencyConfig | None) -> Own:
    """The environment with tools that take so long; itself without a latency. Raises ConfigError
    where it has no tools."""
    if latency is None:
        return environment
    if not environment.tools():
        raise ConfigError(f"environment.latency: {environment.spec.name} has no tools that wait")
    return _under(environment, latency)


def _under(environment: Own, latency: LatencyConfig) -> Own:
    made = environment.under(Slow)
    made._latency = latency
    return cast(Own, made)
