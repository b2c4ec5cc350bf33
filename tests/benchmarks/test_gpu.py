"""The measurements of a GPU, on the processor: parts that fail or come too late stop no other."""

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import gpu
import gpu_engine
import gpu_runs
import pytest
import torch

ROOT = Path(__file__).parents[2]
SMALLEST = ("--shape", "tiny", "--device", "cpu", "--type", "float32", "--sequences", "4")


def said(monkeypatch: pytest.MonkeyPatch, file: Path, *options: str) -> dict[str, Any]:
    """What the command writes."""
    threads = str(torch.get_num_threads())
    given = [*SMALLEST, "--new", "8", "--rounds", "1", "--threads", threads, "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *given, *options])
    try:
        gpu.main()
    finally:
        written: dict[str, Any] = json.loads(file.read_text())["tiny"]
    return written


def test_what_would_begin_too_late_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = said(monkeypatch, tmp_path / "figures.json", "--minutes", "0")
    assert list(found) == [part for part in gpu.PARTS if part != "vllm"]
    assert {one["left out"] for one in found.values()} == {"the 0 minutes are over"}


def test_a_part_that_fails_or_takes_too_long_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no kernel\nfor this device")

    monkeypatch.setattr(gpu_engine, "correctness", broken)
    monkeypatch.setattr(gpu_engine, "sampling", lambda *_: time.sleep(20))
    monkeypatch.setattr(gpu, "GRACE", 0.5)
    options = "--minutes", "0.005", "--parts", "correctness", "sampling", "smollm2"
    with pytest.raises(SystemExit, match="correctness: for this device"):
        said(monkeypatch, tmp_path / "figures.json", *options)
    found = json.loads((tmp_path / "figures.json").read_text())["tiny"]
    assert found["correctness"]["failed"] == "for this device"
    assert "stopped" in found["sampling"]
    assert "minutes are over" in found["smollm2"]["left out"]


def test_steps_of_a_run_are_told_though_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(arguments: Namespace, run: Path, *_: Any) -> dict[str, str]:
        run.mkdir()
        metrics = {"reward/mean": 0.25, "policy/approx_kl": 0.001}
        (run / "metrics.jsonl").write_text(f'{json.dumps(metrics)}\n{{"reward')
        (run / "timing.jsonl").write_text('{"seconds/step": 2.0}\n')
        return {"stopped after": "9 s"}

    monkeypatch.setattr(gpu_runs, "trained", stopped)
    arguments = Namespace(smollm2=tmp_path, rounds=3, until=time.monotonic() + 60)
    found = gpu_runs.smollm2(arguments, "tiny")
    assert (found["reward"], found["mismatch KL"], found["step, s"]) == ([0.25], [0.001], [2.0])
    assert found["stopped after"] == "9 s"


@pytest.mark.long
def test_the_command_runs_on_a_processor(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    sizes = [*SMALLEST, "--new", "8", "--rounds", "1", "--threads", "1", "--json", str(file)]
    parts = ["--parts", "correctness", "training", "smollm2"]
    command = [sys.executable, "benchmarks/gpu.py", *sizes, *parts]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    found = json.loads(file.read_text())["tiny"]
    assert float(found["correctness"]["float32 largest"]) < gpu_engine.EXACT
    assert found["correctness"]["float32 evictions"] > 0
    assert found["training"]["padded"] == "no"
    assert found["training"]["tokens/s"] > 0
    assert "--smollm2" in found["smollm2"]["left out"]
