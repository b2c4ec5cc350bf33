"""Sampling ahead of learning against taking turns, with tools that take their time.

    .venv/bin/python benchmarks/asynchronous.py --json runs/asynchronous.json

The demo's agent, after its cold start, searches the documentation; a search takes a random time
with a heavy tail (log-normal, mean 1 s), the same one for the same episode and turn in every run.
All arms begin with the same weights and make the same number of updates on the same tasks; for each
seed they take turns. Timed is the stage of RL. The trained policies then play the same held-out
tasks, with a search that takes no time.

The sampler's share of time with work is the time that it spent on forward passes by the time in
which at least one request was waiting or being sampled: what is missing is waiting for other
episodes (lockstep), for new weights, or for the processor. Its share of all time also misses when
no episode asked for anything, because all waited for tools or for the update.

Lockstep waits for the slowest tool of every turn and takes most of the time, and its weights do not
depend on how long tools take: it runs with the first `--lockstep-seeds` only.

The arm that samples ahead has the off-policy correction `--correction`. The others sample with the
weights that they improve, make one update of each sample, and so have nothing to correct: with
`truncated` they would learn the same, and only take longer, since the log-probabilities of every
token are computed once more before the update.

With an argument `key=value` the recipe is changed for all arms.
"""

import argparse
import asyncio
import json
import math
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
from finished import finished_run

from turnwise.algorithms.parts import PARTS
from turnwise.config import load_recipe
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.engines.embedded import Counters, EmbeddedEngine
from turnwise.engines.threaded import ThreadedEngine
from turnwise.environments.registry import make_environment
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.evaluation.intervals import wilson
from turnwise.monitor.display import SilentDisplay
from turnwise.seeds import derive
from turnwise.storage.checkpoint import StageName, latest, root_of
from turnwise.storage.run_folder import RunFolder
from turnwise.threads import configure_threads
from turnwise.tokens import Image
from turnwise.tools.tool import tool
from turnwise.training.context import RunContext
from turnwise.training.evaluations import Evaluation
from turnwise.training.prepare import prepare
from turnwise.training.reinforcement import Reinforcement
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
        return await asyncio.to_thread(SearchEnvironment.search, self, query)


class Watched:
    """An engine, and the seconds in which it had something to do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        inner = engine.engine if isinstance(engine, ThreadedEngine) else engine
        assert isinstance(inner, EmbeddedEngine)
        self.counters: Counters = inner.counters
        self.open, self.close = engine.open, engine.close
        self.load_weights, self.sleep, self.stop = engine.load_weights, engine.sleep, engine.stop
        self.with_work = 0.0
        self._requests, self._since = 0, 0.0

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """See Engine."""
        if not self._requests:
            self._since = time.monotonic()
        self._requests += 1
        try:
            return await self.engine.generate(prompt, sampling, session=session, images=images)
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
    lockstep: bool = False


def arms(staleness: int, correction: str, episodes: int, cores: int) -> list[Arm]:
    """Taking turns as the default has it, the same without lockstep, and sampling ahead; both use
    all cores in the end."""
    free = ("engine.deterministic=false", f"engine.max_concurrent_episodes={episodes}")
    return [
        Arm("synchronous", (f"engine.max_concurrent_episodes={episodes}",), cores, lockstep=True),
        Arm("synchronous, no lockstep", free, cores),
        Arm(
            f"asynchronous, max_staleness {staleness}",
            (
                "engine.deterministic=false",
                f"engine.max_concurrent_episodes={episodes * (staleness + 1)}",
                f"train.max_staleness={staleness}",
                f"algorithm.correction={correction}",
            ),
            max(1, cores // 2),
        ),
    ]


async def played(context: RunContext, watched: Watched) -> dict[str, float]:
    """The stage of RL, timed; then the evaluation, with searches that take no time."""
    start = time.monotonic()
    try:
        step = await Reinforcement().run(context, 0)
        seconds = time.monotonic() - start
        busy = watched.counters.seconds
        found = {
            "seconds": seconds,
            "sampler_share_of_time_with_work": busy / watched.with_work,
            "sampler_share_of_all_time": busy / seconds,
            "forward_passes": float(watched.counters.passes),
            "tokens_computed": float(watched.counters.computed),
        }
        quick = make_environment("search", context.recipe.environment.options)
        await Evaluation("trained", quick).run(context, step)
    finally:
        await watched.stop()
    return found


def measure(arm: Arm, seed: int, overrides: Sequence[str]) -> dict[str, Any]:
    """One run of an arm."""
    chosen = [f"seed={seed}", f"threads={arm.threads}", *arm.overrides, *overrides]
    recipe = load_recipe("demo", chosen)
    configure_threads(arm.threads)
    with tempfile.TemporaryDirectory() as folder:
        context = prepare(recipe, RunFolder.new(Path(folder) / "run"), SilentDisplay())
        watched = Watched(context.components.engine)
        context = replace(context, components=replace(context.components, engine=watched))
        found = asyncio.run(played(context, watched))
        lines = context.folder.lines("metrics.jsonl")
        timing = context.folder.lines("timing.jsonl")
        evaluation = context.folder.evaluation("trained")
    assert len(lines) == recipe.train.steps
    assert evaluation is not None
    return {
        "arm": arm.name,
        "seed": seed,
        **found,
        "seconds_waiting": sum(line["seconds/waiting"] for line in timing),
        "seconds_learning": sum(line["seconds/update"] for line in timing),
        "staleness_mean": statistics.fmean(line.get("staleness/mean", 0.0) for line in lines),
        "staleness_max": max(line.get("staleness/max", 0.0) for line in lines),
        "tokens_sampled": sum(line["rollout/tokens_sampled"] for line in lines),
        "tool_calls": statistics.fmean(line["rollout/tool_calls"] for line in lines),
        "rewards": [line["reward/mean"] for line in lines],
        "heldout_tasks": evaluation["n"],
        "success": evaluation["success"],
    }


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Medians over the seeds, with the extremes of the times; success over all seeds together.
    How many times as fast: against the last arm, with the same seed."""
    names = list(dict.fromkeys(run["arm"] for run in runs))
    last = {run["seed"]: run["seconds"] for run in runs if run["arm"] == names[-1]}
    lines = [
        "| | seeds | seconds | of the last arm's | sampler, of time with work | of all time "
        "| learning | staleness mean, max | success on held-out tasks |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        own = [run for run in runs if run["arm"] == name]
        spent = [run["seconds"] for run in own]
        ratios = [run["seconds"] / last[run["seed"]] for run in own]
        middle = {
            key: statistics.median(run[key] for run in own)
            for key, value in own[0].items()
            if isinstance(value, float)
        }
        solved, tasks = success_of(own)
        low, high = wilson(solved, tasks)
        each = ", ".join(f"{run['success']:.0%}" for run in own)
        lines.append(
            f"| {name} | {len(own)} "
            f"| {middle['seconds']:.0f} ({min(spent):.0f}–{max(spent):.0f}) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) "
            f"| {middle['sampler_share_of_time_with_work']:.0%} "
            f"| {middle['sampler_share_of_all_time']:.0%} "
            f"| {middle['seconds_learning']:.0f} s "
            f"| {middle['staleness_mean']:.2f}, {max(run['staleness_max'] for run in own):.0f} "
            f"| {solved / tasks:.1%} ({low:.1%}–{high:.1%}): {each} |"
        )
    return "\n".join(lines)


def success_of(runs: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Held-out tasks that were solved, and all of them, over all seeds."""
    tasks = sum(run["heldout_tasks"] for run in runs)
    return round(sum(run["success"] * run["heldout_tasks"] for run in runs)), tasks


def difference(runs: Sequence[Mapping[str, Any]]) -> str:
    """Success of the last arm less that of the one before it, over the seeds of both.

    With Newcombe's 95% interval, of the Wilson intervals of the two (Statistics in Medicine 17,
    1998, method 10); seeds and tasks are taken for independent.
    """
    names = list(dict.fromkeys(run["arm"] for run in runs))[-2:]
    before, last = ([run for run in runs if run["arm"] == name] for name in names)
    (solved, tasks), (solved_last, tasks_last) = success_of(before), success_of(last)
    (low, high), (low_last, high_last) = wilson(solved, tasks), wilson(solved_last, tasks_last)
    share, share_last = solved / tasks, solved_last / tasks_last
    found = share_last - share
    least = found - math.hypot(share_last - low_last, high - share)
    most = found + math.hypot(high_last - share_last, share - low)
    return (
        f"Success of {names[1]} less that of {names[0]}: {found:+.1%} ({least:+.1%} to {most:+.1%})"
    )


def cold_start(folder: Path, heldout: int) -> tuple[Path, dict[str, Any]]:
    """The demo's weights after its cold start, and how they do on the held-out tasks."""
    run = finished_run(folder, "demo", ["train.steps=0", f"evaluation.tasks={heldout}"])
    found = RunFolder.open(run).evaluation("cold_start")
    weights = latest(root_of(run / "checkpoints", StageName.COLD_START))
    assert found is not None
    assert weights is not None
    return weights, found


def compare(arguments: argparse.Namespace, weights: Path) -> list[dict[str, Any]]:
    """Run the arms one after the other, for each seed."""
    episodes = arguments.tasks * arguments.group
    overrides = [
        f"environment.name={Path(__file__).resolve()}:SlowSearch",
        f"model.name={weights}",
        "sft.steps=0",
        f"evaluation.tasks={arguments.heldout}",
        f"train.steps={arguments.steps}",
        f"train.tasks_per_step={arguments.tasks}",
        f"train.group_size={arguments.group}",
        f"train.checkpoint_every={arguments.steps}",
        *arguments.overrides,
    ]
    runs = []
    for seed in range(arguments.seeds):
        for arm in arms(arguments.staleness, arguments.correction, episodes, arguments.cores):
            if not arm.lockstep or seed < arguments.lockstep_seeds:
                runs.append(measure(arm, seed, overrides))
                print(json.dumps(runs[-1]), flush=True)
    return runs


def main() -> None:
    """Cold start, all arms; print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--correction", choices=PARTS["correction"].names(), default="truncated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lockstep-seeds", type=int, default=1)
    parser.add_argument("--heldout", type=int, default=600)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cold", type=Path, default=Path("runs/asynchronous-cold"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every arm")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    weights, cold = cold_start(arguments.cold, arguments.heldout)
    runs = compare(arguments, weights)
    found = {
        "load": load,
        "cores": arguments.cores,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "steps": arguments.steps,
        "episodes_per_step": arguments.tasks * arguments.group,
        "cold_start": cold,
        "runs": runs,
    }
    print(
        f"\n{arguments.steps} updates on {found['episodes_per_step']} episodes each, "
        f"{arguments.cores} cores, load {load:.1f}; after the cold start {cold['success']:.1%} "
        f"({cold['low']:.1%}–{cold['high']:.1%}) of {cold['n']} held-out tasks\n"
    )
    print(table(runs))
    print(f"\n{difference(runs)}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
