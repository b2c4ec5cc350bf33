"""Tools that are made slow: how long they wait, and that nothing else changes."""

import asyncio
import time
from statistics import fmean, quantiles

import pytest

from tests.fakes import Capitals
from turnwise.config import LatencyConfig, load_recipe
from turnwise.environments.base import Environment, Split
from turnwise.environments.derived import slow
from turnwise.environments.registry import environment_of, make_environment
from turnwise.errors import ConfigError
from turnwise.types import Action, Step, Task, ToolCall


class Silent(Environment):
    """No tools."""

    def tasks(self, split: Split) -> list[Task]:
        return [Task(split, split)]


def results(environment: Environment, seed: int, calls: int, each: int = 1) -> list[Step]:
    """What an episode with `calls` turns shows, with so many calls in each."""
    look = ToolCall("lookup", {"country": "Italy"})

    async def work() -> list[Step]:
        own = environment.fresh()
        await own.reset(own.tasks("train")[0].public(), seed)
        return [await own.step(Action("", calls=(look,) * each)) for _ in range(calls)]

    return asyncio.run(work())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited for, without the waiting."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("turnwise.environments.derived.asyncio.sleep", sleep)
    return found


def made(mean: float, spread: float = 0.0) -> Environment:
    return slow(Capitals(), LatencyConfig(mean=mean, spread=spread))


def test_every_call_waits() -> None:
    begun = time.monotonic()
    steps = results(made(0.01), seed=0, calls=3, each=2)
    assert time.monotonic() - begun >= 0.06
    assert [step.results[0].content for step in steps] == ["The capital is Rome."] * 3


@pytest.mark.long
def test_calls_take_the_mean_or_spread_around_it(waits: list[float]) -> None:
    """A log-normal distribution has its median at mean * exp(-spread²/2), here 0.46."""
    results(made(1.0), seed=0, calls=3)
    assert waits == [1.0] * 3
    waits.clear()
    results(made(1.0, 1.25), seed=0, calls=20_000)
    assert fmean(waits) == pytest.approx(1.0, rel=0.1)
    hundredths = quantiles(waits, n=100)
    assert hundredths[49] == pytest.approx(0.458, rel=0.05)
    assert hundredths[98] == pytest.approx(8.4, rel=0.2)


def test_the_seed_alone_decides_how_long(waits: list[float]) -> None:
    results(made(1.0, 1.0), seed=1, calls=5)
    results(made(1.0, 1.0), seed=1, calls=5)
    results(made(1.0, 1.0), seed=2, calls=5)
    assert waits[:5] == waits[5:10] != waits[10:]


@pytest.mark.wing("environments")
def test_everything_else_stays(waits: list[float]) -> None:
    from turnwise_environments.measurement import played

    environment = make_environment(
        "desk", {"count": 20}, {"write": 5}, latency=LatencyConfig(mean=1.0)
    )
    task = environment.tasks("heldout")[0]
    play = asyncio.run(played(environment, task, environment.oracle(task)))
    assert play.trajectory.verdict.success
    assert sum(waits) == play.trajectory.tool_calls


@pytest.mark.wing("environments")
def test_a_recipe_and_its_ablations_are_slow(waits: list[float]) -> None:
    from turnwise_environments.measurement import played

    recipe = load_recipe(
        "multi_tool", ["environment.latency.mean=2", "environment.options.count=8"]
    )
    for environment in (environment_of(recipe), environment_of(recipe).ablations()["no_search"]):
        waits.clear()
        task = next(one for one in environment.tasks("heldout") if one.info["needs"] != "none")
        play = asyncio.run(played(environment, task, environment.oracle(task)))
        assert sum(waits) == 2 * play.trajectory.tool_calls > 0


def test_tools_are_needed() -> None:
    with pytest.raises(ConfigError, match="latency: silent has no tools"):
        slow(Silent(), LatencyConfig(mean=1.0))
