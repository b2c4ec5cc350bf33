"""Sampling ahead of learning against taking turns, with tools that take their time.

    .venv/bin/python benchmarks/asynchronous.py --json runs/asynchronous.json

The demo's agent, from its base, searches the documentation; a search takes a random time with a
heavy tail (log-normal, mean 1 s), the same one for the same episode and turn in every run. Each arm
makes the same number of updates on the same tasks; arms alternate. Timed is the whole stage of RL.

The sampler's share of time with work is the time in forward passes by the time in which at least
one request was waiting or being sampled: what is missing is waiting for other episodes (lockstep),
for new weights, or for the processor. Its share of all time also misses when no episode asked for
anything, because all waited for tools or for the update.

With an argument `key=value` the recipe is changed for all arms.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from turnwise.config import load_recipe
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.monitor.display import SilentDisplay
from turnwise.monitor.run_folder import RunFolder
from turnwise.seeds import derive
from turnwise.threads import configure_threads
from turnwise.tools.tool import tool
from turnwise.trainer import Trainer
from turnwise.types import Observation, Task

SPREAD = 1.25
"""Of the logarithm of a search's seconds: half take less than 0.46 s, one in a hundred 8 s."""
MEAN = 1.0


class SlowSearch(SearchEnvironment):
    """The demo's environment with a slow search; how slow depends on the episode's seed alone."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """And draw from the episode's own latencies."""
        self._latencies = random.Random(derive(seed, "latencies"))
        return await super().reset(task, seed)

    @tool
    async def search(self, query: str) -> str:
        """Search the documents for words or names; gives the best matches, one on each line."""
        middle = -(SPREAD**2) / 2
        await asyncio.sleep(MEAN * self._latencies.lognormvariate(middle, SPREAD))
        return SearchEnvironment.search(self, query)


class Watched:
    """An engine, and the seconds in which it had something to do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.open, self.close = engine.open, engine.close
        self.load, self.stop = engine.load, engine.stop
        self.with_work = 0.0
        self._requests, self._since = 0, 0.0

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, session: str
    ) -> Completion:
        """See Engine."""
        if not self._requests:
            self._since = time.monotonic()
        self._requests += 1
        try:
            return await self.engine.generate(prompt, sampling, session=session)
        finally:
            self._requests -= 1
            if not self._requests:
                self.with_work += time.monotonic() - self._since


@dataclass(frozen=True)
class Arm:
    """What is compared."""

    name: str
    overrides: tuple[str, ...]
    threads: int
    """Of each of the two, sampling and learning."""


def arms(staleness: int, episodes: int, cores: int) -> list[Arm]:
    """Taking turns as the default has it, the same without lockstep, and sampling ahead; both use
    all cores in the end."""
    free = ("engine.deterministic=false", f"engine.concurrency={episodes}")
    return [
        Arm("synchronous", (f"engine.concurrency={episodes}",), cores),
        Arm("synchronous, no lockstep", free, cores),
        Arm(
            f"asynchronous, max_staleness {staleness}",
            (
                "engine.deterministic=false",
                f"engine.concurrency={episodes * (staleness + 1)}",
                f"train.max_staleness={staleness}",
            ),
            max(1, cores // 2),
        ),
    ]


def measure(arm: Arm, overrides: Sequence[str]) -> dict[str, Any]:
    """One run of an arm."""
    chosen = [f"threads={arm.threads}", *arm.overrides, *overrides]
    recipe = load_recipe("demo", chosen)
    configure_threads(arm.threads)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(recipe, RunFolder.new(Path(folder) / "run"), SilentDisplay())
        engine = trainer.parts.engine
        assert isinstance(engine, EmbeddedEngine)
        watched = Watched(engine)
        trainer.parts = replace(trainer.parts, engine=watched)
        start = time.monotonic()
        asyncio.run(trainer.run())
        seconds = time.monotonic() - start
        lines = trainer.folder.lines("metrics.jsonl")
    assert len(lines) == recipe.train.steps
    return {
        "arm": arm.name,
        "seconds": seconds,
        "sampler_share_of_time_with_work": engine.counters.seconds / watched.with_work,
        "sampler_share_of_all_time": engine.counters.seconds / seconds,
        "staleness_mean": statistics.fmean(line.get("staleness/mean", 0.0) for line in lines),
        "staleness_max": max(line.get("staleness/max", 0.0) for line in lines),
        "tokens_sampled": sum(line["rollout/tokens_sampled"] for line in lines),
        "tool_calls": statistics.fmean(line["rollout/tool_calls"] for line in lines),
        "reward_of_last_step": lines[-1]["reward/mean"],
    }


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Medians over the repeats, with the extremes of the times."""
    names = list(dict.fromkeys(run["arm"] for run in runs))
    seconds = {name: [run["seconds"] for run in runs if run["arm"] == name] for name in names}
    baseline = seconds[names[0]]
    lines = [
        "| | seconds | times as fast | sampler, of time with work | of all time "
        "| staleness mean, max | searches |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        own = [run for run in runs if run["arm"] == name]
        ratios = [first / own for first, own in zip(baseline, seconds[name], strict=True)]

        def middle(key: str, own: Sequence[Mapping[str, Any]] = own) -> float:
            return statistics.median(run[key] for run in own)

        spent = seconds[name]
        lines.append(
            f"| {name} | {statistics.median(spent):.1f} ({min(spent):.1f}–{max(spent):.1f}) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) "
            f"| {middle('sampler_share_of_time_with_work'):.0%} "
            f"| {middle('sampler_share_of_all_time'):.0%} "
            f"| {middle('staleness_mean'):.2f}, {middle('staleness_max'):.0f} "
            f"| {middle('tool_calls'):.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the arms one after the other, several times; print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("overrides", nargs="*", help="key=value, for every arm")
    arguments = parser.parse_args()
    overrides = [
        f"environment.name={Path(__file__).resolve()}:SlowSearch",
        "sft.steps=0",
        "evaluation.tasks=0",
        f"train.steps={arguments.steps}",
        f"train.tasks_per_step={arguments.tasks}",
        f"train.group_size={arguments.group}",
        f"train.checkpoint_every={arguments.steps}",
        *arguments.overrides,
    ]
    load = os.getloadavg()[0]
    episodes = arguments.tasks * arguments.group
    compared = arms(arguments.staleness, episodes, arguments.cores)
    runs = []
    for _ in range(arguments.repeats):
        for arm in compared:
            runs.append(measure(arm, overrides))
            print(json.dumps(runs[-1]), flush=True)
    print(
        f"\n{arguments.steps} updates on {episodes} episodes each, {arguments.cores} cores, "
        f"load {load:.1f}, {arguments.repeats} repeats\n"
    )
    print(table(runs))
    if arguments.json:
        found = {
            "load": load,
            "cores": arguments.cores,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "steps": arguments.steps,
            "episodes_per_step": episodes,
            "runs": runs,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
