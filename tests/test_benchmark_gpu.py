"""The benchmark for a GPU runs on a CPU as well, with a tiny shape: every part of it."""

import importlib
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "benchmarks"
SMALL = ["--device=cpu", "--shape=tiny", "--sequences=8", "--new=8", "--turns=2", "--rounds=1"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu")


def measure(gpu: Any, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--threads=1", *SMALL, *options])
    gpu.main()


@pytest.mark.long
def test_every_part_runs_on_the_cpu(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(gpu, monkeypatch, "--checkpointing")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == [
        f"tiny {part}" for part in ("correctness", "sampling", "training", "step", "lora")
    ]
    assert "evictions" in lines[1]
    assert "tokens/s" in lines[2]


def test_an_engine_that_is_off_is_an_error(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "EXACT", 0.0)
    monkeypatch.setattr(gpu, "lora", lambda *_: {"rank": 1})
    with pytest.raises(SystemExit, match="tiny correctness: the engine is off by"):
        measure(gpu, monkeypatch, "--type=float32", "--parts", "correctness", "lora")
    assert "tiny lora: rank 1" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["0.6B", "8B"])
def test_weights_are_counted(gpu: Any, shape: str) -> None:
    with torch.device("meta"):
        model = gpu.random_model(shape, "float32", "meta")
    exact = sum(weight.numel() for weight in model.parameters())
    plain = Namespace(pure=False, type="bfloat16")
    assert gpu.needed(plain, shape, "training") == pytest.approx(16 * exact, rel=1e-3)
