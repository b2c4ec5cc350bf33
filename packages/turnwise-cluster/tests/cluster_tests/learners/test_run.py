"""Promise 7 with several processes: each of them may be killed, and the run ends with the weights
of one that never stopped; and no process outlives the first."""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tests.small_runs import start, write_recipe

TABLES = """
[engine]
max_sequences = 4
[rollout]
max_turns = 2
max_turn_tokens = 16
max_tokens = 120
[algorithm]
name = "ppo"
kl_coefficient = 0.05
[learning]
learning_rate = 1e-3
[train]
steps = 6
tasks_per_step = 2
group_size = 4
checkpoint_every = 2
[evaluation]
tasks = 0
[cluster]
learners = 2
"""


def workers(driver: int) -> list[int]:
    """The other ranks of a run."""
    command = ["pgrep", "-P", str(driver), "-f", "turnwise_cluster.learners.worker"]
    return list(map(int, subprocess.run(command, capture_output=True, text=True).stdout.split()))


def is_gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


def finish(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def killed_at(run: Path, process: "subprocess.Popen[str]", step: int, driver: bool) -> str:
    """Kill the driver or rank 1 when there is a step's checkpoint; returns what is said of it."""
    while process.poll() is None and not (run / f"checkpoints/step-{step:06d}").exists():
        time.sleep(0.001)
    (worker,) = workers(process.pid)
    subprocess.run(["kill", "-KILL", str(process.pid if driver else worker)], check=True)
    _, errors = process.communicate()
    assert process.returncode == (-signal.SIGKILL if driver else 3)
    deadline = time.monotonic() + 20
    while not is_gone(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_gone(worker)
    return " ".join(errors.split())


@pytest.mark.slow
def test_any_process_may_be_killed_and_none_is_left(tmp_path: Path) -> None:
    recipe, whole, run = write_recipe(tmp_path, "Letters", TABLES), tmp_path / "a", tmp_path / "b"
    finish(start("train", recipe, "--run", whole))
    told = killed_at(run, start("train", recipe, "--run", run), 2, driver=False)
    assert re.search(r"learner rank 1 \(.*\) ended in \w+ \(code -9\)", told)
    assert "Traceback" not in told
    killed_at(run, start("train", "--resume", run), 4, driver=True)
    finish(start("train", "--resume", run))
    expected, found = (
        AutoModelForCausalLM.from_pretrained(each / "checkpoints/step-000006").state_dict()
        for each in (whole, run)
    )
    assert all((expected[name] == found[name]).all() for name in expected)
    assert (whole / "metrics.jsonl").read_text() == (run / "metrics.jsonl").read_text()
