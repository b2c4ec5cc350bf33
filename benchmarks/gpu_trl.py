"""The part `trl` of `gpu.py`: TRL's whole steps beside ours.

TRL is that of the present interpreter, or of the environment that `whole_step.py` makes for it.
"""

import contextlib
import sys
import tempfile
from argparse import Namespace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contenders import alternate
from gpu_engine import GROUP
from gpu_models import config_of
from peers import PEERS, cache, fits, versions
from whole_step import CONTENDERS, check_work, start, summary, work_wanted
from whole_step_task import NAMES, write_task

from turnwise.config import ModelConfig
from turnwise.models.load import load_tokenizer
from turnwise_studies.tiny.architecture import tiny_config

ROUNDS = 2
"""Whole steps that count: TRL's take seconds."""
ROWS = 16
"""Trajectories of a micro-batch of TRL's; ours have their default, about as many tokens."""
LONGEST = 40
"""Tokens of a turn, at most: sampling longer ones would take minutes in all."""


def trl(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Seconds of whole steps of four turns with tool calls, and of the sampling in them; how many
    times as fast the faster of ours is. All do the same work, or it is an error."""
    python = python_with_trl()
    if python is None:
        return {"left out": "TRL is not importable: pip install trl==1.16.0, or run whole_step.py"}
    tasks = min(max(arguments.sequences // GROUP, 1), len(NAMES))
    group = min(arguments.sequences, GROUP)
    tokens = max(8, min(LONGEST, arguments.new))
    make_config = tiny_config if shape == "tiny" else partial(untied, shape)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder, tokenizer = Path(place), load_tokenizer(ModelConfig())
        write_task(folder, tokenizer, tasks, group, tokens, make_config, arguments.device)
        started = [
            stack.enter_context(start(name, folder, arguments.threads, python, changes))
            for name, changes in settings(arguments, tasks * group).items()
        ]
        for contender in started:
            contender.answer()
        alternate(started, 1, delay=0.0)
        answers = alternate(started, min(arguments.rounds, ROUNDS), delay=0.0)
    check_work(answers, work_wanted(tasks, group, tokens))
    return {
        f"{row['']}: {name}": row[name]
        for row in summary(answers)
        for name in ("step, s", "sampling and tools, s", "memory, GB", "turnwise is faster by")
        if name in row
    }


def settings(arguments: Namespace, trajectories: int) -> dict[str, tuple[str, ...]]:
    """The contenders, each with what is changed of its settings."""
    lower = ", bfloat16" if arguments.type == "bfloat16" else ""
    rows = min(ROWS, trajectories)
    smaller = f"per_device_train_batch_size={rows}"
    steps = f"gradient_accumulation_steps={trajectories // rows}"
    device = f"model.device={arguments.device}"
    chosen = [f"turnwise{lower}", *(["turnwise, bfloat16 weights"] if lower else []), f"TRL{lower}"]
    others = {"turnwise": (device,), "trl": (smaller, steps)}
    return {name: others[CONTENDERS[name][0]] for name in chosen}


def untied(shape: str, tokenizer: Any) -> Any:
    """The configuration of a shape whose embeddings can be a chain."""
    return config_of(
        shape,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def python_with_trl() -> Path | None:
    """An interpreter that has TRL; None where there is none."""
    if find_spec("trl"):
        return Path(sys.executable)
    own = cache() / "trl" / "bin" / "python"
    return own if fits(PEERS["trl"], versions(own)) else None
