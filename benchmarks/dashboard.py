"""Times and memory of the dashboard with 100,000 trajectories: `python -m benchmarks.dashboard`.

A run folder of 782 steps is written, with 128 episodes of 240 tokens each, and one step of 128
episodes of 10,000 tokens. Then the answers that a page waits for are asked of a server of its own
process, the first time and again. Nothing is trained.
"""

import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.commands.viewing import dashboard_of
from turnwise.config import load_recipe
from turnwise.dashboard.security import Door
from turnwise.dashboard.server import application
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import ROWS_IN_A_GROUP, SCHEMA
from turnwise.tokens import Source

STEPS, EPISODES, SHORT, LONG = 782, 128, 240, 10_000
AGAIN = 5


def main() -> None:
    """Write the run, ask, and print a table."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        write_run(run)
        before = memory()
        found = asyncio.run(ask(run))
    print(f"{STEPS * EPISODES} trajectories, {STEPS + 1} files")
    for name, first, again in found:
        print(f"{name:<48}{1000 * first:>8.0f} ms first{1000 * again:>8.0f} ms again")
    print(f"memory of the process: {before:.0f} MiB before, {memory():.0f} MiB after")


def write_run(run: Path) -> None:
    """A run folder as a training would leave it."""
    folder = RunFolder.new(run)
    folder.begin(load_recipe("demo", [f"train.steps={STEPS}"]))
    from turnwise.models.load import load_tokenizer

    folder.write_tokenizer(load_tokenizer(load_recipe("demo").model))
    short = table(SHORT)
    for step in range(1, STEPS + 1):
        write(run, f"step-{step:06d}", short)
        folder.append("metrics.jsonl", {"step": step, "reward/mean": math.sin(step)})
    write(run, f"step-{STEPS + 1:06d}", table(LONG))


def write(run: Path, name: str, rows: pa.Table) -> None:
    """A file of trajectories, as the storage writes it."""
    file = run / "trajectories" / f"{name}.parquet"
    pq.write_table(rows, file, compression="zstd", row_group_size=ROWS_IN_A_GROUP)


def table(tokens: int) -> pa.Table:
    """The rows of a step: groups of 8, half of the tokens sampled."""
    ids = [(7 * place) % 400 for place in range(tokens)]
    sampled = [place % 2 == 1 for place in range(tokens)]
    row: dict[str, Any] = {
        "prompt": "What is the base class of the class MessageDefect?",
        "parent": None,
        "first_turn": 0,
        "seed": 0,
        "penalty": 0.0,
        "parts": json.dumps({"exact_match": 0.0}),
        "turn_parts": "{}",
        "turn_rewards": [],
        "detail": "answered 'nothing'",
        "answer": "nothing",
        "problem": "",
        "capture": None,
        "turns": 1,
        "tool_calls": 0,
        "steps": json.dumps([None]),
        "ids": ids,
        "source": [int(Source.MODEL if one else Source.TOOL) for one in sampled],
        "turn": [0] * tokens,
        "version": [0 if one else -1 for one in sampled],
        "logprob": [
            -0.001 * (place % 97) if one else math.nan for place, one in enumerate(sampled)
        ],
        "contexts": [[0, 0]],
        "images": [],
        "trained_logprob": [
            -0.001 * (p % 89) if one else math.nan for p, one in enumerate(sampled)
        ],
        "advantage": [-1.0 if one else 0.0 for one in sampled],
        "value": [],
    }
    action = {"text": "nothing", "thought": "", "calls": [], "answer": "nothing"}
    action |= {"error": None, "summary": False}
    rows = [
        row
        | {"task": f"task-{number // 8}", "group": f"train/0/{number // 8}", "episode": number % 8}
        | {"outcome": "success" if number % 3 else "failure", "success": number % 3 > 0}
        | {"reward": float(number % 3 > 0), "actions": json.dumps([action])}
        for number in range(EPISODES)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


async def ask(run: Path) -> list[tuple[str, float, float]]:
    """Seconds of each answer, the first time and the median of some more."""
    long = f"step-{STEPS + 1:06d}"
    questions = {
        "list of runs": "runs",
        "the run, all its files": "runs/0",
        "curves": "runs/0/curves",
        "a step": f"runs/0/steps/step-{STEPS:06d}",
        "first page of all episodes": "runs/0/episodes?limit=50",
        "failures among all episodes": "runs/0/episodes?success=false&limit=50",
        "a text among all episodes": "runs/0/episodes?text=MessageDefect&limit=50",
        "an episode of 10,000 tokens": f"runs/0/episodes/{long}/77",
        "its tokens": f"runs/0/episodes/{long}/77/tokens",
    }
    door, found = Door("127.0.0.1", 8080), []
    transport = httpx2.ASGITransport(application(dashboard_of([run]), door))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        await client.get(f"/?token={door.secret}")
        for name, question in questions.items():
            seconds = []
            for _ in range(1 + AGAIN):
                begun = time.perf_counter()
                answer = await client.get(f"/api/{question}", timeout=300)
                seconds.append(time.perf_counter() - begun)
                assert answer.status_code == 200, answer.text
            found.append((name, seconds[0], statistics.median(seconds[1:])))
    return found


def memory() -> float:
    """MiB that this process holds now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return math.nan


if __name__ == "__main__":
    sys.exit(main())
