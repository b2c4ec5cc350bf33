"""Workers with slow tools: episodes a second, and what they cost the process of the run.

    .venv/bin/python -m benchmarks.workers --json runs/workers.json
    .venv/bin/python -m benchmarks.workers --workers 4 --kill-every 2

No model: a script calls a tool that takes a second, and answers. Each worker has `--places`
episodes under way; `--episodes` are played for the most workers, and in proportion for fewer. `0`
workers is the process of the run alone, with the places of one. In each of `--steps` parts all
episodes end before others begin, as in a run; memory is resident, in the middle of the parts and at
their end. Processor time is that of the process of the run, all threads.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.tables import table
from cluster_tests.workers.processes import descendants
from turnwise.config import Recipe, check_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.registry import environment_of
from turnwise.models.load import load_tokenizer
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner, members_of
from turnwise.scaffolds.registry import make_scaffold
from turnwise.threads import configure_threads
from turnwise.types import Action, ToolCall
from turnwise_cluster.resources import allocated

MEBIBYTE = 2**20


def recipe_of(workers: int, seconds: float) -> Recipe:
    """The recipe of so many workers."""
    environment = {
        "name": f"{Path(__file__).with_name('workers_environment.py')}:Errand",
        "latency": {"mean": seconds, "spread": 0.0},
    }
    rollout = {"max_seconds": 60.0, "max_ungraded_share": 1.0}
    values = {"name": "workers", "environment": environment, "rollout": rollout}
    return check_recipe(values | {"cluster": {"workers": workers}}, "workers")


def resident(process: int) -> float:
    """MiB of a process that are in memory now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


def actors() -> list[int]:
    """The workers' processes, which Ray names, and of which another program may have some too."""
    found = []
    for process in descendants(os.getpid()):
        try:
            if Path(f"/proc/{process}/cmdline").read_text().startswith("ray::_Actor"):
                found.append(process)
        except OSError:  # it has ended
            continue
    return found


async def kill(every: float) -> None:
    """Kill a random worker every so many seconds."""
    stream = random.Random(0)
    while True:
        await asyncio.sleep(every)
        there = actors()
        if there:
            os.kill(stream.choice(there), signal.SIGKILL)


def measure(workers: int, options: argparse.Namespace) -> dict[str, Any]:
    """Play a number of workers' share of the episodes."""
    recipe = recipe_of(workers, options.seconds)
    share = max(workers, 1) / max(1, *options.workers)
    each = max(1, round(options.episodes * share / options.steps))
    environment, tokenizer = environment_of(recipe), load_tokenizer(recipe.model)
    scaffold = make_scaffold(recipe.scaffold, tokenizer, environment.tools())
    call = scaffold.render(Action("", calls=(ToolCall("search", {"query": "TarFile"}),)))
    answer = scaffold.render(Action("", answer="tarfile"))
    shortest: list[int] = []

    def policy(session: str, prompt: list[int]) -> list[int]:
        shortest[:] = [min([len(prompt), *shortest])]
        return call if len(prompt) == shortest[0] else answer

    places = PrioritySemaphore(max(workers, 1) * options.places)
    with allocated(recipe) as found:
        pool = found.workers
        engine = ScriptedEngine(policy)
        limits = recipe.rollout
        runner = RolloutRunner(environment, scaffold, engine, limits, places, workers=pool)

        async def played() -> dict[str, Any]:
            if pool is not None:
                pool.set_up(recipe, tokenizer, environment)
                await pool.start()
            killing = asyncio.create_task(kill(options.kill_every)) if options.kill_every else None
            memory, begun, used = [], time.perf_counter(), time.process_time()
            for step in range(options.steps):
                groups = await runner.collect(environment.tasks("train"), each, 0, f"train/{step}")
                assert all(one.reward == 1 for one in members_of(groups)), "an episode was lost"
                memory.append((resident(os.getpid()), sum(map(resident, actors()))))
            seconds, used = time.perf_counter() - begun, time.process_time() - used
            episodes = each * options.steps
            row = {
                "workers": workers,
                "episodes": episodes,
                "seconds": round(seconds, 1),
                "episodes a second": round(episodes / seconds, 1),
                "driver's processor, ms an episode": round(used / episodes * 1e3, 2),
                "driver, MiB": " → ".join(f"{memory[at][0]:.0f}" for at in (len(memory) // 2, -1)),
                "workers, MiB": " → ".join(f"{memory[at][1]:.0f}" for at in (len(memory) // 2, -1)),
            }
            if killing is not None:
                killing.cancel()
            if pool is not None:
                row |= {name.partition("/")[2]: int(n) for name, n in pool.metrics().items()}
                await pool.stop()
            return row

        return asyncio.run(played())


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4, 8])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--places", type=int, default=64, help="episodes under way for each worker")
    parser.add_argument("--seconds", type=float, default=1.0, help="of the tool")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds; 0 kills none")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    configure_threads(1)
    machine = describe(1)
    print(table([machine]), flush=True)
    rows = []
    for workers in options.workers:
        rows.append(measure(workers, options))
        print(table(rows[-1:]), flush=True)
    print(table(rows))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
