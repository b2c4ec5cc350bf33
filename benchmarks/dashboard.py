"""What the dashboard takes of time and memory with many trajectories.

    python benchmarks/dashboard.py --trajectories 100000 --json runs/dashboard.json

A run folder of so many trajectories is written, 64 a step: some 230 tokens each as in the demo, and
10,000 each in the last step. `turnwise view` serves it, and one client asks, each question several
times, first of a server that has just begun. Not here: what the browser takes to draw.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.config import load_recipe
from turnwise.models.places import tiny_folder
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import SCHEMA, rows_together
from turnwise.tokens import Source

PER_STEP = 64
GROUP = 8
USUAL, LONG = 230, 10_000
"""Tokens of an episode."""
VOCABULARY = 2000
OUTCOMES = ("success", "failure", "failure", "truncated_turns")


def write_run(folder: Path, trajectories: int, words: random.Random) -> int:
    """Write a run of so many trajectories; gives the number of its steps."""
    steps = math.ceil(trajectories / PER_STEP)
    run = RunFolder.new(folder)
    run.begin(load_recipe("demo", [f"train.steps={steps}"]))
    for file in tiny_folder("tiny").glob("tokenizer*"):
        (folder / "tokenizer" / file.name).write_bytes(file.read_bytes())
    batches = [_rows(words) for _ in range(8)]
    for step in range(1, steps + 1):
        rows = batches[step % len(batches)]
        if step == steps:
            rows = [_row(place, LONG, words) for place in range(PER_STEP)]
        groups = [f"train/{step}/{place // GROUP}" for place in range(PER_STEP)]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        table = table.set_column(SCHEMA.get_field_index("group"), "group", pa.array(groups))
        name = f"step-{step:06d}.parquet"
        file = folder / "trajectories" / name
        pq.write_table(table, file, rows_together(rows), compression="zstd")
        numbers = {f"part/{name}": words.random() for name in range(40)}
        run.append("metrics.jsonl", {"step": step, "reward/mean": 0.5, **numbers})
        run.append("timing.jsonl", {"step": step, "seconds/step": 1.0})
    return steps


def _rows(words: random.Random) -> list[dict[str, Any]]:
    return [_row(place, USUAL, words) for place in range(PER_STEP)]


def _row(place: int, length: int, words: random.Random) -> dict[str, Any]:
    """A trajectory: a tenth of it is the task, a half of the rest was sampled, in turns of 60."""
    source = [
        Source.USER if at < length // 10 else (Source.MODEL, Source.TOOL)[at // 30 % 2]
        for at in range(length)
    ]
    sampled = [one == Source.MODEL for one in source]
    logprob = [-words.random() if one else math.nan for one in sampled]
    turns = length // 60 + 1
    said = " ".join(f"word{words.randrange(5000)}" for _ in range(30))
    call = {"name": "search", "arguments": {"query": said}, "id": "0.0"}
    action = {"text": said, "thought": said, "calls": [call], "answer": None}
    step = {"observation": [said, int(Source.TOOL)], "results": [[call, said, True]]}
    outcome = OUTCOMES[place % len(OUTCOMES)]
    success = outcome == "success"
    return {
        "task": f"task-{place // GROUP}",
        "prompt": f"Question {place // GROUP}? {said}",
        "episode": place % GROUP,
        "first_turn": 0,
        "seed": place,
        "outcome": outcome,
        "reward": float(success),
        "penalty": 0.0,
        "parts": "{}",
        "turn_parts": "{}",
        "turn_rewards": [],
        "success": success,
        "detail": "as expected" if success else f"expected {said[:20]}",
        "answer": said[:20],
        "problem": "",
        "turns": turns,
        "tool_calls": turns,
        "actions": json.dumps([action | {"error": None, "summary": False}] * turns),
        "steps": json.dumps([step | {"ended": [False] * 3, "reward": None}] * turns),
        "ids": [words.randrange(VOCABULARY) for _ in range(length)],
        "source": [int(one) for one in source],
        "turn": [at // 60 for at in range(length)],
        "version": [1 if one else -1 for one in sampled],
        "logprob": logprob,
        "trained_logprob": [1.01 * one for one in logprob],
        "entropy": [-one for one in logprob],
        "loss_weight": [1e-3 if one else math.nan for one in sampled],
        "advantage": [(1.0 if success else -0.5) if one else 0.0 for one in sampled],
        "value": [],
        "contexts": [[0, 0]],
        "images": [],
    }


class Server:
    """`turnwise view` in a process of its own, and a client that is let in."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.split(" at ")[1].strip()
        self._client = httpx2.Client(base_url=address.partition("/?")[0], timeout=300)
        self._client.get(address, follow_redirects=True).raise_for_status()

    def ask(self, place: str) -> tuple[float, float]:
        """The milliseconds until a whole answer is here, and those of the server's processor."""
        used, begun = self._used(), time.perf_counter()
        self._client.get(f"/api/{place}").raise_for_status()
        return 1000 * (time.perf_counter() - begun), 1000 * (self._used() - used)

    def _used(self) -> float:
        """Seconds of the processor that the server has had, in hundredths."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mebibytes(self) -> float:
        """The memory that the server has now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """The run, served for as long as the block runs."""
    command = [sys.executable, "-m", "turnwise", "view", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


def questions(steps: int) -> dict[str, str]:
    """What is asked, by what a reader would call it."""
    last = f"step-{steps:06d}"
    group = quote(f"train/{steps}/0", safe="")
    return {
        "all runs": "runs",
        "the run": "runs/0",
        "first page of episodes": "runs/0/episodes?limit=50",
        "a page in the middle": f"runs/0/episodes?limit=50&offset={steps * PER_STEP // 2}",
        "curves": "runs/0/curves",
        "a step": f"runs/0/steps/{last}",
        "an episode of 10,000 tokens": f"runs/0/episodes/{last}/5",
        "its tokens": f"runs/0/episodes/{last}/5/tokens",
        "its group side by side": f"runs/0/groups/{last}/{group}",
        "episodes of one outcome": "runs/0/episodes?outcome=truncated_turns",
        "a text in a step": f"runs/0/episodes?step={steps}&text=word77",
        "a text in all episodes": "runs/0/episodes?text=word77",
    }


def measure(folder: Path, steps: int, rounds: int, words: random.Random) -> dict[str, Any]:
    """Milliseconds of each question and of the processor for it, first and then again; memory
    before, after, and after a walk through many pages."""
    with served(folder) as server:
        memory = {"at first": server.mebibytes()}
        times = {}
        for name, place in questions(steps).items():
            first, again = server.ask(place), [server.ask(place) for _ in range(rounds)]
            times[name] = [*first, *map(statistics.median, zip(*again, strict=True))]
        memory["after all questions"] = server.mebibytes()
        for walk in ("after 300 pages and episodes", "after 300 more"):
            for _ in range(150):
                step = words.randrange(steps) + 1
                server.ask(f"runs/0/episodes?limit=50&offset={PER_STEP * step}")
                server.ask(f"runs/0/episodes/step-{step:06d}/{words.randrange(PER_STEP)}/tokens")
            memory[walk] = server.mebibytes()
    return {"milliseconds": times, "mebibytes": memory}


def show(found: dict[str, Any], say: Callable[[str], None]) -> None:
    """Print the figures as tables of Markdown."""
    say("| asked for | first, ms | processor | again, ms | processor |\n|---|---|---|---|---|")
    for name, numbers in found["milliseconds"].items():
        say(f"| {name} | {' | '.join(f'{number:.0f}' for number in numbers)} |")
    say("\n| memory | MiB |\n|---|---|")
    for name, size in found["mebibytes"].items():
        say(f"| {name} | {size:.0f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the run, serve it, ask, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trajectories", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the run is, or is to be written")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    words = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "run"
        steps = math.ceil(given.trajectories / PER_STEP)
        if not folder.exists():
            steps = write_run(folder, given.trajectories, words)
        found = measure(folder, steps, given.rounds, words)
    show(found, print)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
