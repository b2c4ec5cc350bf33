"""Whether RL teaches tasks that the cold start never solves, or only makes likelier what it does.

    .venv/bin/python benchmarks/new_skill.py runs/search_r1 --arm PPO --tasks 50

A study's cold start plays held-out tasks, 64 tries each at temperature 1; a task that is solved is
put aside at once. What is left was never solved. The arm's trained weights then play exactly these,
64 tries each; so do the weights of the cold start once more, which tells what is luck: a task that
was not solved in 64 tries may be in the next 64. Writes new_skill.json into the study's folder and
prints a table.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.config import load_recipe
from turnwise.errors import DataError
from turnwise.evaluation.evaluate import successes_by_task
from turnwise.evaluation.intervals import clustered, wilson
from turnwise.parts.components import Components, build_components
from turnwise.rollout.order import choose_tasks
from turnwise.rollout.runner import RolloutRunner, members_of
from turnwise.storage import checkpoint
from turnwise.types import Task

ROUND = 8
"""Tries of each task between two looks at which tasks are solved."""
Counts = dict[str, tuple[int, int]]
"""Tries and successes by task."""


def main() -> None:
    """Measure each seed of a study, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", type=Path, help="the folder of a study with a cold start")
    parser.add_argument("--arm", default="PPO", help="the arm that was trained")
    parser.add_argument("--tasks", type=int, default=50, help="held-out tasks")
    parser.add_argument("--tries", type=int, default=64)
    arguments = parser.parse_args()
    finished = arguments.study.glob(f"{arguments.arm}-[0-9]*/report.json")
    trained = sorted(report.parent for report in finished)
    if not trained:
        raise SystemExit(f"{arguments.study} has no finished run of the arm {arguments.arm}")
    found = [asyncio.run(seed_of(run, arguments.tasks, arguments.tries)) for run in trained]
    text = json.dumps(found, indent=1)
    (arguments.study / "new_skill.json").write_text(f"{text}\n", encoding="utf-8")
    print(table(found))


async def seed_of(trained: Path, count: int, tries: int) -> dict[str, Any]:
    """The figures of one seed: what its cold start never solves, and what becomes of it."""
    seed = trained.name.rpartition("-")[2]
    own = trained.with_name(f"cold_start-{seed}")
    cold = own if own.is_dir() else min(trained.parent.glob("cold_start-[0-9]*"))
    before = await parts_of(cold, trained)
    tasks = choose_tasks(before.environment.tasks("heldout"), count, seed=int(seed))
    left = await never_solved(runner_of(before), tasks, tries, int(seed))
    again = await played(runner_of(before), left, tries, int(seed), "again")
    await before.engine.stop()
    after = await parts_of(trained, trained)
    learned = await played(runner_of(after), left, tries, int(seed), "trained")
    await after.engine.stop()
    return {
        "seed": int(seed),
        "tasks": len(tasks),
        "tries": tries,
        "never solved": len(left),
        "cold start again": figures(again),
        "trained": figures(learned),
    }


async def parts_of(weights: Path, run: Path) -> Components:
    """The parts of a run with the newest weights of another one, or its own. Raises DataError where
    there are none."""
    saved, _ = checkpoint.newest(weights / "checkpoints")
    if saved is None:
        raise DataError(f"{weights} has no checkpoint: let the study end first")
    parts = build_components(load_recipe(str(run / "config.toml")), saved.folder)
    await parts.load(0)
    return parts


def runner_of(parts: Components) -> RolloutRunner:
    """Rollouts at temperature 1."""
    return parts.runner(parts.recipe.rollout.model_copy(update={"temperature": 1.0}))


async def never_solved(
    runner: RolloutRunner, tasks: Sequence[Task], tries: int, seed: int
) -> list[Task]:
    """The tasks without a success in so many tries."""
    left = list(tasks)
    for number in range(0, tries, ROUND):
        counts = await played(runner, left, min(ROUND, tries - number), seed, f"first/{number}")
        left = [task for task in left if not counts[task.id][1]]
    return left


async def played(
    runner: RolloutRunner, tasks: Sequence[Task], tries: int, seed: int, label: str
) -> Counts:
    """Tries and successes of each task."""
    groups = await runner.collect(tasks, tries, seed, f"new skill/{label}")
    return successes_by_task(members_of(groups))


def figures(counts: Counts) -> dict[str, Any]:
    """Tasks with a success, and success of a try, each with its 95% interval: Wilson's, and one
    that is clustered by task."""
    if not counts:
        return {"solved": 0, "solved interval": [0.0, 1.0], "success": 0.0, "interval": [0.0, 1.0]}
    tries, successes = zip(*counts.values(), strict=True)
    solved = sum(map(bool, successes))
    return {
        "solved": solved,
        "solved interval": list(wilson(solved, len(counts))),
        "success": sum(successes) / sum(tries),
        "interval": list(clustered(successes, tries)),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    """A row for each seed."""
    lines = ["| seed | tasks | never solved | weights | solved of these | success of a try |"]
    lines.append("|---|---|---|---|---|---|")
    for one in found:
        for weights in ("cold start again", "trained"):
            part = one[weights]
            lines.append(
                f"| {one['seed']} | {one['tasks']} | {one['never solved']} | {weights} "
                f"| {part['solved']} ({_percent(part['solved interval'])}) "
                f"| {part['success']:.1%} ({_percent(part['interval'])}) |"
            )
    return "\n".join(lines)


def _percent(interval: Sequence[float]) -> str:
    low, high = interval
    return f"{low:.0%} – {high:.0%}"


if __name__ == "__main__":
    main()
