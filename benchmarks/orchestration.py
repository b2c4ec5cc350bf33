"""What the agent loop itself costs: many episodes at once, without a model.

    .venv/bin/python benchmarks/orchestration.py --json runs/orchestration.json

All episodes are under way at the same time. In each turn a script calls a tool, whose result is
shown to it; in the last one it answers. Messages are rendered with the tokenizer of `tiny`, actions
are parsed, tools are called through their schema, every token keeps its provenance. One process,
one thread, one core (`--core`). Processor seconds are what is left of the neighbours on a busy
machine. Memory is the process's highest, and what it was before.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.config import ModelConfig, RolloutConfig, ScaffoldConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment, Split
from turnwise.models.load import load_tokenizer
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.registry import make_scaffold
from turnwise.threads import configure_threads
from turnwise.tools.tool import tool
from turnwise.types import Action, Outcome, Task, ToolCall, Trajectory, Verdict

MEBIBYTE = 2**20
PATIENCE = 3600.0
"""Seconds."""


class Echo(Environment):
    """One tool, which lets everybody else go first: ten thousand turns lie between two of one
    episode, so deadlines are long."""

    tool_deadline = PATIENCE

    def tasks(self, split: Split) -> Sequence[Task]:
        """One."""
        return [Task(f"{split} task", "Which module defines the class TarFile?")]

    @tool
    async def search(self, query: str) -> str:
        """Look something up."""
        await asyncio.sleep(0)
        return f"[1] {query} is a class. It stands in the module tarfile of the library."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Right, if it answered."""
        right = trajectory.answer == "tarfile"
        return Verdict(float(right), right)


class Counting(ScriptedEngine):
    """Knows how many episodes were under way at once."""

    most = 0

    def open(self, session: str) -> None:
        """And counts."""
        super().open(session)
        self.most = max(self.most, len(self._open))


def memory() -> float:
    """MiB, the highest so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE


def measure(episodes: int, turns: int) -> dict[str, float]:
    """Play them all once."""
    environment = Echo()
    scaffold = make_scaffold(
        ScaffoldConfig(), load_tokenizer(ModelConfig(name="tiny")), environment.tools()
    )
    call = scaffold.render(Action("", calls=(ToolCall("search", {"query": "TarFile"}),)))
    answer = scaffold.render(Action("", answer="tarfile"))
    said = dict.fromkeys(map(str, range(episodes)), 0)

    def policy(session: str, prompt: list[int]) -> list[int]:
        number = str(int(session.partition("-")[0]))
        said[number] += 1
        return call if said[number] < turns else answer

    limits = RolloutConfig(
        max_turns=turns, max_tokens=4096, max_tool_calls=turns, max_seconds=PATIENCE
    )
    engine = Counting(policy)
    runner = RolloutRunner(environment, scaffold, engine, limits, PrioritySemaphore(episodes))
    tasks = environment.tasks("train")
    before, start, used = memory(), time.perf_counter(), time.process_time()
    (group,) = asyncio.run(runner.collect(tasks, episodes, 0, "benchmark"))
    seconds, used = time.perf_counter() - start, time.process_time() - used
    members = group.trajectories
    assert engine.most == episodes
    assert all(member.outcome == Outcome.SUCCESS for member in members)
    assert all(len(member.turns) == turns for member in members)
    return {
        "seconds": seconds,
        "processor_seconds": used,
        "processor_microseconds_per_turn": used / (episodes * turns) * 1e6,
        "tokens_per_episode": float(len(members[0].tokens)),
        "mebibytes": memory(),
        "mebibytes_before": before,
    }


def main() -> None:
    """Measure, print a table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    configure_threads(1)
    load = os.getloadavg()[0]
    runs = [measure(arguments.episodes, arguments.turns) for _ in range(arguments.repeats)]
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    print(f"{arguments.episodes} episodes of {arguments.turns} turns, one core, load {load:.1f}\n")
    print("| seconds: fastest / median | processor | µs per turn | tokens | MiB, of them before |")
    print("|---|---|---|---|---|")
    fastest = min(run["seconds"] for run in runs)
    print(
        f"| {fastest:.1f} / {middle['seconds']:.1f} | {middle['processor_seconds']:.1f} "
        f"| {middle['processor_microseconds_per_turn']:.0f} | {middle['tokens_per_episode']:.0f} "
        f"| {max(run['mebibytes'] for run in runs):.0f}, {runs[0]['mebibytes_before']:.0f} |"
    )
    if arguments.json:
        found: dict[str, Any] = {
            "episodes": arguments.episodes,
            "turns": arguments.turns,
            "load": load,
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "runs": runs,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
