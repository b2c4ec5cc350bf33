"""A step of the demo on other processors than this one: `python benchmarks/processors.py`.

    python benchmarks/processors.py --steps 5 --json runs/processors.json

Each row is a process of its own that trains the recipe `demo` for some steps: as this machine is,
as if it had AVX2 alone, on one core, and without a compiler on the path; and with the model's own
layers in place of those that are written out, which no row may be slower than on the same
processor. PyTorch and its libraries are told to leave instructions out by environment variables;
that they do is seen by the rate of bfloat16, which is far below float32's there. Rows take turns,
round by round; figures are medians over all steps but the first of each round.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import describe
from tables import table

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
ROWS: dict[str, tuple[dict[str, str], bool]] = {
    "this processor": ({}, False),
    "this processor, the model's own layers": ({}, True),
    "AVX2": (AVX2, False),
    "AVX2, the model's own layers": (AVX2, True),
    "AVX2, no compiler": ({**AVX2, "PATH": ""}, False),
    "AVX2, one core": ({**AVX2, "ONE_CORE": "1"}, False),
}
"""Environment variables of each, and whether the model's own layers compute."""
CHANGES = ("sft.demonstrations.count=64", "sft.steps=4", "evaluation.tasks=0")


def main() -> None:
    """Run all rows in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--worker", nargs=3, metavar=("RUN", "STEPS", "OWN"), help="of a row")
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker)
        return
    if os.cpu_count() == 1:
        ROWS.pop("AVX2, one core")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as place:
        for number in range(arguments.rounds):
            for name in ROWS:
                found[name].append(measured(name, Path(place) / f"{number}", arguments.steps))
    rows = [{"": name, **middle(rounds)} for name, rounds in found.items()]
    print(f"{table([describe(0)])}\n\n{table(rows)}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"machine": describe(0), "rows": found}, indent=2))


def measured(name: str, run: Path, steps: int) -> dict[str, Any]:
    """The figures of one row in one round."""
    changed, own = ROWS[name]
    environment = {**os.environ, **changed}
    if environment.get("PATH") == "":
        environment["PATH"] = str(Path(sys.executable).parent)
    command = [sys.executable, __file__, "--worker", str(run), str(steps), str(int(own))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    lines = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    shutil.rmtree(run)
    for key in ("rollout", "update", "step"):
        found[f"{key}, s"] = statistics.median(line[f"seconds/{key}"] for line in lines[1:])
    return found


def work(run: str, steps: str, own: str) -> None:
    """Train in this process, and say what it computes with."""
    if "ONE_CORE" in os.environ:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from turnwise.config import load_recipe
    from turnwise.threads import configure_threads

    recipe = load_recipe("demo", [*CHANGES, f"train.steps={steps}"])
    configure_threads(recipe.threads)
    import torch
    from machine import rates

    from turnwise import api
    from turnwise.forward import small_llama

    if int(own):
        small_llama.LARGEST = 0  # no model is small
    speeds = rates()
    api.train(recipe, run=run, progress=False)
    told = {"instructions": torch.backends.cpu.get_cpu_capability(), "threads": recipe.threads}
    print(json.dumps({**told, **speeds}))


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the rounds."""
    first = rounds[0]
    return {
        key: round(statistics.median(one[key] for one in rounds), 2)
        if isinstance(first[key], float)
        else first[key]
        for key in first
    }


if __name__ == "__main__":
    main()
