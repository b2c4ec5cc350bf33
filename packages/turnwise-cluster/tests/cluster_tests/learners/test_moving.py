"""A run goes on with another number of processes than it has begun with, by the command line."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from cluster_tests.learners.test_learner import assert_same_optimizers
from cluster_tests.learners.test_run import TABLES, finish
from tests.small_runs import start, write_recipe
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read

SETTINGS = (
    TABLES.replace("1e-3", "1e-4")
    .replace("checkpoint_every = 2", "checkpoint_every = 1")
    .replace("steps = 6", "steps = 4")
)


def killed_at(run: Path, process: "subprocess.Popen[str]", step: int) -> None:
    """Kill a run when there is a step's checkpoint."""
    while process.poll() is None and not (run / f"checkpoints/step-{step:06d}").exists():
        time.sleep(0.001)
    process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.numbers
def test_a_run_of_two_goes_on_with_one_and_then_with_two(tmp_path: Path) -> None:
    """And ends with the weights of one that never changed."""
    recipe, whole, run = write_recipe(tmp_path, "Letters", SETTINGS), tmp_path / "a", tmp_path / "b"
    finish(start("train", recipe, "--run", whole))
    killed_at(run, start("train", recipe, "--run", run), 1)
    killed_at(run, start("train", "--resume", run, "cluster.learners=1"), 2)
    finish(start("train", "--resume", run, "cluster.learners=2", "cluster.seconds=300"))
    notes = [json.loads(line) for line in (run / "moves.jsonl").read_text().splitlines()]
    assert [line["changes"]["cluster.learners"] for line in notes] == [
        {"before": 2, "now": 1},
        {"before": 1, "now": 2},
    ]
    assert 1 <= notes[0]["step"] < notes[1]["step"] < 4
    shown = " ".join(start("show", run, "--count", "1").communicate()[0].split())
    assert f"after step {notes[0]['step']} with cluster.learners = 1 (before: 2)" in shown
    (expected, one), (found, other) = ended(whole), ended(run)
    assert_same_optimizers(expected, found, one, other)


def ended(run: Path) -> tuple[dict[str, object], dict[str, object]]:
    """The weights with which a run has ended, and the state of their optimizer."""
    folder = run / "checkpoints/step-000004"
    model = AutoModelForCausalLM.from_pretrained(folder)
    return dict(model.named_parameters()), read(checkpoint.load(folder).learner)
