"""Sampling alone, against transformers and vLLM on the CPU: `python benchmarks/sampling.py`.

    python benchmarks/sampling.py --json runs/sampling.json
    python benchmarks/sampling.py --sizes 1M --rounds 9

64 sequences of 128 tokens after prompts of 32, at temperature 1, from random Qwen3 weights with a
vocabulary of 2,048, in float32; with `--sizes 135M` 16 sequences of 32 tokens of a Llama of the
shape of SmolLM2-135M. Contenders are
processes of their own, vLLM in an environment of its own (`peers.py`), and take turns; each says
how many tokens every sequence got, and they must be as many. `generate` and `generate_batch` are
those of transformers; `vllm` runs in one process, `vllm-processes` in the three of its default.
turnwise's log-probabilities are part of its time; the others make none.

`share of product` is 2 × parameters × tokens a second, over the rate of one large matrix product
in the same numbers; `weights and caches, GB/s` what a step reads at least, beside what the
machine copies.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from contenders import Contender, alternate, ratio
from machine import describe, rates
from peers import cache, interpreter
from tables import table

from turnwise.threads import configure_threads

SIZES = {"1M": "float32", "5M": "float32", "20M": "float32", "135M": "float32"}
CONTENDERS = ("turnwise", "generate", "generate_batch", "vllm", "vllm-processes")
DEFAULT = CONTENDERS[:4]
SEQUENCES, PROMPT, NEW = 64, 32, 128
FEWER = {"135M": (16, 32)}
"""Sequences and new tokens of a large model, with which a round takes seconds too."""
BYTES = {"float32": 4, "bfloat16": 2}
LIBRARIES = ("lib/libiomp5.so",)
"""What vLLM's documentation asks to be loaded first, as far as its environment has it."""


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES)[:3])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(DEFAULT))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    configure_threads(arguments.threads)  # before torch is loaded
    machine, able = describe(arguments.threads), rates()
    print(table([{**machine, **able}]), flush=True)
    rows = []
    for size in arguments.sizes:
        rows += measure(size, arguments, able)
        print(f"\n{table(rows)}", flush=True)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {"machine": machine, "rates": able, "sampling": rows}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(
    size: str, arguments: argparse.Namespace, able: dict[str, float]
) -> list[dict[str, Any]]:
    """A row for each contender, with a model of this size."""
    from engine_measurements import random_model

    dtype, room = SIZES[size], FEWER.get(size, (SEQUENCES, NEW))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        model = random_model(size)
        model.to(getattr(sys.modules["torch"], dtype)).save_pretrained(folder)
        started = [
            stack.enter_context(start(name, Path(folder), dtype, arguments.threads, *room))
            for name in arguments.contenders
        ]
        ready = {contender.name: contender.answer() for contender in started}
        alternate(started, 1)  # to get warm
        answers = alternate(started, arguments.rounds)
    check_lengths(answers, *room)
    work = model.num_parameters(), bytes_of_step(model, *room)
    return [
        row(name, answers, work, dtype, able, *room)
        | {"": f"{size}, {name}", "ready": [ready[name]]}
        for name in answers
    ]


def start(name: str, folder: Path, dtype: str, threads: int, sequences: int, new: int) -> Contender:
    """A contender's process."""
    sizes = [dtype, str(sequences), str(PROMPT), str(new), str(threads)]
    here = Path(__file__).parent
    if not name.startswith("vllm"):
        command = [sys.executable, here / "sampling_here.py", name, folder, *sizes]
        return Contender(name, command, {"OMP_NUM_THREADS": str(threads)})
    python = interpreter("vllm")
    bound = cores(threads)
    found = [str(python.parents[1] / library) for library in LIBRARIES]
    variables = {
        "LD_PRELOAD": ":".join(path for path in found if Path(path).exists()),
        "VLLM_CACHE_ROOT": str(cache() / "vllm-compiled"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": bound,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if name == "vllm":  # what vLLM sets for its own processes
        variables |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": str(threads),
            "KMP_AFFINITY": f"granularity=fine,explicit,proclist=[{bound}]",
            "KMP_BLOCKTIME": "5",
            "KMP_TPAUSE": "0",
        }
    return Contender(name, [python, here / "sampling_vllm.py", folder, *sizes], variables)


def cores(count: int) -> str:
    """The first cores that this process may use. Example: "0,1"."""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:count])


def check_lengths(
    answers: dict[str, list[dict[str, Any]]], sequences: int = SEQUENCES, new: int = NEW
) -> None:
    """All must have sampled all tokens in every round."""
    for name, rounds in answers.items():
        for found in rounds:
            if found["lengths"] != [new] * sequences:
                raise SystemExit(f"{name} sampled {found['lengths']} and not {new} each")


def bytes_of_step(model: Any, sequences: int = SEQUENCES, new: int = NEW) -> int:
    """What one step for all sequences reads at least: weights, and half of the final caches."""
    config = model.config
    history = PROMPT + new / 2
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return model.dtype.itemsize * int(model.num_parameters() + sequences * history * numbers)


def row(
    name: str,
    answers: dict[str, list[dict[str, Any]]],
    work: tuple[int, int],
    dtype: str,
    able: dict[str, float],
    sequences: int,
    new: int,
) -> dict[str, Any]:
    """One contender's figures."""
    seconds = [answer["seconds"] for answer in answers[name]]
    ours = [answer["seconds"] for answer in answers.get("turnwise", [])]
    parameters, read = work
    rate = sequences * new / statistics.median(seconds)
    share = 2 * parameters * rate / 1e9 / able[f"{dtype} product, GFLOP/s"]
    return {
        "": name,
        "numbers": dtype,
        "tokens/s": round(rate),
        "processor, s": round(statistics.median(found["processor"] for found in answers[name]), 2),
        "turnwise is faster by": ratio(seconds, ours) if ours else "",
        "share of product": f"{share:.0%}",
        "weights and caches, GB/s": round(read * rate / sequences / 1e9, 1),
        "rounds": [{**found, "lengths": len(found["lengths"])} for found in answers[name]],
    }


if __name__ == "__main__":
    main()
