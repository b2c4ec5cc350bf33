"""TRL's side of `whole_step.py`: one step of GRPOTrainer on each round.

    python whole_step_trl.py FOLDER THREADS [NAME=VALUE ...]

Runs in TRL's environment, which knows nothing of turnwise. The environment is of the form that TRL
documents: a class with `reset`, whose public methods are tools. What follows are other values for
GRPOConfig, in JSON.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from contenders import Stopwatch, Worker
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from whole_step_device import settled
from whole_step_work import work_of

STEPS = 1_000_000


class Lookup:
    """The tool is a coroutine, so that TRL may run it beside others."""

    found = ""
    delay = 0.0

    def reset(self, **row: Any) -> None:
        return None

    async def search(self, query: str) -> str:
        """
        Look something up.

        Args:
            query: What to look for.
        """
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.found


class Watched(GRPOTrainer):
    """Keeps what it has sampled last, and how long that took."""

    def _generate(self, prompts: list[Any]) -> Any:
        start = time.perf_counter()
        found = super()._generate(prompts)
        self.rollout = time.perf_counter() - start
        asked, said, mask = found[:3]
        self.work = work_of(
            (before + after, [False] * len(before) + [bool(value) for value in own])
            for before, after, own in zip(asked, said, mask, strict=True)
        )
        return found


class Rounds(TrainerCallback):
    """Ends a round with each step, and waits for the next one before it goes on."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.trainer: Watched | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        Lookup.delay = self.worker.answer()["delay"]
        self.watch = Stopwatch()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        memory = settled()
        times = self.watch.read()
        assert self.trainer is not None
        found = {"rollout": self.trainer.rollout, "work": self.trainer.work}
        Lookup.delay = self.worker.answer(**times, **memory, **found)["delay"]
        self.watch = Stopwatch()


def main() -> None:
    """Train until nobody asks for another round."""
    worker = Worker()
    folder, threads, *changes = sys.argv[1:]
    torch.set_num_threads(int(threads))
    task = json.loads((Path(folder) / "task.json").read_text())
    group, questions = task["group"], task["questions"]
    chosen = {
        "per_device_train_batch_size": group * len(questions),
        "num_generations": group,
        "max_completion_length": task["context"] // 2,
        "max_tool_calling_iterations": task["turns"] - 1,
        "max_steps": STEPS,
        "learning_rate": 1e-9,
        "lr_scheduler_type": "constant",
        "beta": 0.0,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "report_to": "none",
        "logging_strategy": "no",
        "save_strategy": "no",
        "disable_tqdm": True,
        **{name: json.loads(value) for name, value in (change.split("=") for change in changes)},
    }
    prompts = [
        [{"role": "user", "content": task["instructions"] + question}] for question in questions
    ]

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [float(index % group % 2) for index in range(len(completions))]

    Lookup.found = task["found"]
    rounds = Rounds(worker)
    with tempfile.TemporaryDirectory() as place:
        trainer = Watched(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=reward,
            args=GRPOConfig(output_dir=place, **chosen),
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=AutoTokenizer.from_pretrained(folder),
            environment_factory=Lookup,
            callbacks=[rounds],
        )
        rounds.trainer = trainer
        trainer.train()


if __name__ == "__main__":
    main()
