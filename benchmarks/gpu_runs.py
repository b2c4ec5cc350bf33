"""Two parts of `gpu.py` that run a recipe as a user does, in a process of its own: the demo, held
against its expected runs, and the first steps of `smollm2`, of a pretrained model."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from gpu_models import WrongError

TURNWISE = [sys.executable, "-m", "turnwise"]
DEMO_SECONDS = 180.0
"""What of the minutes that a machine is lent for may go into the demo."""
TOLD = {
    "step, s": "seconds/step",
    "rollout, tokens/s": "rollout/sampled_tokens_per_second",
    "update, tokens/s": "update/tokens_per_second",
    "logprob gap": "policy/logprob_gap",
    "mismatch KL": "policy/approx_kl",
    "reward": "reward/mean",
}
"""What is told of each step of `smollm2`, and its name among the metrics."""


def demo(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Success and minutes of the whole recipe, and whether it lies within the band of other runs;
    `shape` is not its model's."""
    del shape
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Path(folder) / "demo", time.monotonic()
        problem = trained(arguments, run, DEMO_SECONDS, "demo")
        if problem:
            return problem
        seconds = time.monotonic() - begun
        against = [*TURNWISE, "compare-runs", str(run), "--expected"]
        compared = subprocess.run(against, capture_output=True, text=True)
        report = json.loads((run / "report.json").read_text())
        success = f"{report['trained']['success']:.1%}"
    found = {"minutes": round(seconds / 60, 1), "success": success}
    if compared.returncode:
        raise WrongError(f"{found}, which is not as elsewhere: {last_line(compared.stdout)}")
    return {**found, "within its band": True}


def smollm2(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Seconds, speed, mismatch and reward of each of as many steps as there are rounds."""
    del shape
    if arguments.smollm2 is None:
        return {"left out": "--smollm2 is to name the model's folder or GGUF file"}
    steps = f"train.steps={arguments.rounds}"
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Path(folder) / "smollm2", time.monotonic()
        changes = f"model.name={arguments.smollm2.absolute()}", steps, "evaluation.tasks=0"
        problem = trained(arguments, run, left(arguments), "smollm2", *changes)
        seconds = time.monotonic() - begun
        metrics, times = (lines(run / f"{name}.jsonl") for name in ("metrics", "timing"))
    rows = [{**one, **other} for one, other in zip(metrics, times, strict=False)]
    told: dict[str, Any] = {
        name: [float(f"{row[key]:.3g}") for row in rows if key in row] for name, key in TOLD.items()
    }
    if told["step, s"]:
        told["start, s"] = round(seconds - sum(row["seconds/step"] for row in rows))
        told["median step, s"] = round(statistics.median(told["step, s"]), 2)
    return {**told, **problem}


def trained(
    arguments: Namespace, run: Path, seconds: float, recipe: str, *changes: str
) -> dict[str, str]:
    """Train by a recipe on the device, for so many seconds at most; what is to be told where it was
    stopped. Raises WrongError where it ended in an error."""
    command = [*TURNWISE, "train", recipe, "--run", str(run), f"model.device={arguments.device}"]
    most = min(seconds, left(arguments))
    try:
        done = subprocess.run(
            [*command, *changes],
            capture_output=True,
            text=True,
            timeout=None if most == float("inf") else most,
        )
    except subprocess.TimeoutExpired as stopped:
        said = (stopped.stdout or b"").decode(errors="replace")
        return {"stopped after": f"{most:.0f} s", "last line": last_line(said)}
    if done.returncode:
        raise WrongError(f"turnwise train {recipe}: {last_line(done.stderr or done.stdout)}")
    return {}


def left(arguments: Namespace) -> float:
    """Seconds until a part that is under way is stopped, less those to tell of it."""
    return max(arguments.until - time.monotonic() - 5, 1.0)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was said"])[-1]


def lines(file: Path) -> list[dict[str, Any]]:
    """Of a file of JSON lines; none where there is no file, and the last only if it is whole."""
    text = file.read_text() if file.is_file() else ""
    return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]
