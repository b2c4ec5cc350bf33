"""The benchmark for a GPU runs on a CPU as well, with a tiny shape: every part of it."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
SMALL = ["--device=cpu", "--shape=tiny", "--sequences=8", "--new=8", "--turns=2", "--rounds=1"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu")


@pytest.mark.long
def test_every_part_runs_on_the_cpu(
    gpu: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--threads=1", *SMALL])
    gpu.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == [
        f"tiny {part}" for part in ("correctness", "sampling", "training", "step", "lora")
    ]
    assert "evictions" in lines[1]
    assert "tokens/s" in lines[2]


def test_an_engine_that_is_off_is_an_error(gpu: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "EXACT", 0.0)
    command = ["gpu.py", "--threads=1", "--type=float32", "--parts=correctness", *SMALL]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match="off by"):
        gpu.main()
