"""turnwise's side of `whole_step.py`: one step of a run on each round.

    python whole_step_turnwise.py FOLDER THREADS [KEY=VALUE ...]

The run is an ordinary one, with its run folder; what follows are changes to its recipe.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from contenders import Stopwatch, Worker
from whole_step_device import settled
from whole_step_environment import Lookup
from whole_step_work import work_of

from turnwise.config import Recipe, load_recipe
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.threads import configure_threads
from turnwise.tokens import Source

STEPS = 1_000_000
"""More than there are rounds: nothing is done but steps."""


class Rounds(SilentDisplay):
    """Ends a round with each step of RL, and waits for the next one before it goes on."""

    def __init__(self, folder: RunFolder, worker: Worker) -> None:
        self.folder, self.worker, self.step = folder, worker, 0

    def phase(self, name: str, total: int) -> None:
        """The first step is about to begin."""
        Lookup.delay = self.worker.answer()["delay"]
        self.watch = Stopwatch()

    def advance(self, text: str = "") -> None:
        """A step is over, but for new weights, which the next one begins with."""
        memory = settled()
        times = self.watch.read()
        self.step += 1
        file = self.folder.path / "trajectories" / f"step-{self.step:06d}.parquet"
        rows = pq.read_table(file, columns=["ids", "source"]).to_pylist()
        work = work_of(
            (row["ids"], [source == Source.MODEL for source in row["source"]]) for row in rows
        )
        timing = list(self.folder.lines("timing.jsonl"))[-1]
        found = {"rollout": timing["seconds/rollout"], "work": work}
        Lookup.delay = self.worker.answer(**times, **memory, **found)["delay"]
        self.watch = Stopwatch()


def recipe(folder: Path, threads: int, overrides: Sequence[str]) -> Recipe:
    """The run's recipe."""
    task = json.loads((folder / "task.json").read_text())
    values = {
        "name": "whole_step",
        "threads": threads,
        "model.name": str(folder),
        "environment.name": "whole_step_environment:Lookup",
        "environment.options.questions": task["questions"],
        "environment.options.found": task["found"],
        "scaffold.options.instructions": task["instructions"],
        "rollout.max_turns": task["turns"],
        "rollout.max_tool_calls": task["turns"] - 1,
        "rollout.max_turn_tokens": task["turn_tokens"] + 1,
        "rollout.max_tokens": task["context"],
        "learning.learning_rate": 1e-9,
        "train.steps": STEPS,
        "train.checkpoint_every": STEPS,
        "train.tasks_per_step": len(task["questions"]),
        "train.group_size": task["group"],
        "evaluation.tasks": 0,
    }
    file = folder / "recipe.toml"
    file.write_text('[environment]\nname = ""\n')
    chosen = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    return load_recipe(str(file), [*chosen, *overrides])


def main() -> None:
    """Run until nobody asks for another round."""
    worker = Worker()
    folder, threads, *overrides = sys.argv[1:]
    configure_threads(int(threads))  # before torch is loaded
    from turnwise.training.prepare import prepare
    from turnwise.training.run import run as run_stages

    chosen = recipe(Path(folder), int(threads), overrides)
    with tempfile.TemporaryDirectory() as place:
        run = RunFolder.new(Path(place) / "run")
        asyncio.run(run_stages(prepare(chosen, run, Rounds(run, worker))))


if __name__ == "__main__":
    main()
