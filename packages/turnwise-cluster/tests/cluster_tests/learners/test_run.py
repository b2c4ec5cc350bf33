"""Promise 7 with several processes: each of them may be killed, and the run ends with the weights
of one that never stopped; and no process outlives the first."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from cluster_tests.learners.comparing import assert_same_optimizers
from cluster_tests.workers.processes import left_after
from tests.small_runs import start, write_recipe
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read

TABLES = """
engine.max_sequences = 4
rollout = { max_turns = 2, max_turn_tokens = 16, max_tokens = 120 }
algorithm = { name = "ppo", kl_coefficient = 0.05 }
learning.learning_rate = 1e-3
train = { steps = 6, tasks_per_step = 2, group_size = 4, checkpoint_every = 2 }
evaluation.tasks = 0
cluster.learners = 2
"""


def workers(driver: int) -> list[int]:
    """The other ranks of a run."""
    command = ["pgrep", "-P", str(driver), "-f", "turnwise_cluster.learners.worker"]
    return list(map(int, subprocess.run(command, capture_output=True, text=True).stdout.split()))


def finish(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def killed_at(run: Path, process: "subprocess.Popen[str]", step: int, driver: bool) -> str:
    """Kill the driver or rank 1 when there is a step's checkpoint; returns what is said of it."""
    while process.poll() is None and not (run / f"checkpoints/step-{step:06d}").exists():
        time.sleep(0.001)
    others = workers(process.pid)
    os.kill(process.pid if driver else others[0], signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == (-signal.SIGKILL if driver else 3)
    assert left_after(set(others), 20) == set()
    return " ".join(errors.split())


@pytest.mark.slow
def test_any_process_may_be_killed_and_none_is_left(tmp_path: Path) -> None:
    recipe, whole, run = write_recipe(tmp_path, "Letters", TABLES), tmp_path / "a", tmp_path / "b"
    finish(start("train", recipe, "--run", whole))
    told = killed_at(run, start("train", recipe, "--run", run), 2, driver=False)
    assert re.search(r"learner rank 1 \(.*\) ended in [\w.]+ \(code -9\)", told)
    assert "Traceback" not in told
    killed_at(run, start("train", "--resume", run), 4, driver=True)
    finish(start("train", "--resume", run))
    expected, found = (
        AutoModelForCausalLM.from_pretrained(each / "checkpoints/step-000006").state_dict()
        for each in (whole, run)
    )
    assert all((expected[name] == found[name]).all() for name in expected)
    assert (whole / "metrics.jsonl").read_text() == (run / "metrics.jsonl").read_text()


SETTINGS = (
    TABLES.replace("1e-3", "1e-4")
    .replace("checkpoint_every = 2", "checkpoint_every = 1")
    .replace("steps = 6", "steps = 4")
)


@pytest.mark.slow
@pytest.mark.numbers
def test_a_run_of_two_goes_on_with_one_and_then_with_two(tmp_path: Path) -> None:
    """And ends with the weights of one that never changed."""
    recipe, whole, run = write_recipe(tmp_path, "Letters", SETTINGS), tmp_path / "a", tmp_path / "b"
    finish(start("train", recipe, "--run", whole))
    killed_at(run, start("train", recipe, "--run", run), 1, driver=True)
    killed_at(run, start("train", "--resume", run, "cluster.learners=1"), 2, driver=True)
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
