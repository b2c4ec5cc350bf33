"""Runs side by side, with a program in place of `turnwise train` that takes no time."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_runs import Listening
from turnwise.config import load_recipe
from turnwise_studies.plan import PlannedRun
from turnwise_studies.running import Machine, Runs

PROGRAM = """
import os, pathlib, sys, time
words = sys.argv[1:]
folder = pathlib.Path(words[-1])
began = str(time.monotonic())
if words[0] != "--resume":
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(pathlib.Path(words[0]).read_text())
(folder / "words.txt").write_text(" ".join(words))
(folder / "gpus.txt").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
if "bad" in folder.name:
    print("turnwise: it is bad")
    sys.exit(3)
if "slow" in folder.name:
    time.sleep(60)
(folder / "checkpoints/cold_start/step-000001").mkdir(parents=True, exist_ok=True)
if "trained" in folder.name:
    (folder / "checkpoints/step-000002").mkdir()
time.sleep(0.05)
(folder / "report.json").write_text("{}")
(folder / "time.txt").write_text(f"{began} {time.monotonic()}")
"""


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out = tmp_path / "out"
    for name in ("recipes", "logs"):
        (out / name).mkdir(parents=True)
    command = (sys.executable, "-S", str(program))
    return Runs(out, Machine(2), Listening(), [], command)


def run(name: str, after: str | None = None, *changes: str, threads: int = 1) -> PlannedRun:
    recipe = load_recipe("search", [f"threads={threads}", "train.steps=2", *changes])
    return PlannedRun(name, name, 0, recipe, after)


def times(runs: Runs, name: str) -> list[float]:
    return [float(text) for text in (runs.out / name / "time.txt").read_text().split()]


@pytest.mark.long
def test_arms_begin_after_their_cold_start_with_its_weights(runs: Runs) -> None:
    runs.pending = [run("cold"), run("one", after="cold"), run("other")]
    assert runs.all() == []
    assert times(runs, "one")[0] > times(runs, "cold")[1]
    given = load_recipe(str(runs.out / "one" / "config.toml"))
    assert given.model.name == str(runs.out / "cold/checkpoints/cold_start/step-000001")
    assert load_recipe(str(runs.out / "other" / "config.toml")).model.name == "tiny"


@pytest.mark.long
def test_an_arm_continues_from_the_weights_of_rl(runs: Runs) -> None:
    runs.pending = [run("trained"), run("one", after="trained")]
    assert runs.all() == []
    given = load_recipe(str(runs.out / "one" / "config.toml"))
    assert given.model.name == str(runs.out / "trained/checkpoints/step-000002")


@pytest.mark.long
def test_an_arm_begins_after_all_arms_that_it_names_as_models(runs: Runs) -> None:
    student = run("student", "cold", "evaluation.base=arm:one")
    student = replace(student, models={"arm:one": "trained", "arm:two": "other"})
    runs.pending = [run("cold"), student, run("trained"), run("other")]
    assert runs.all() == []
    ends = [times(runs, name)[1] for name in ("cold", "trained", "other")]
    assert times(runs, "student")[0] > max(ends)
    given = load_recipe(str(runs.out / "student" / "config.toml"))
    assert given.evaluation.base == str(runs.out / "trained/checkpoints/step-000002")


@pytest.mark.long
def test_a_failed_run_stops_only_those_that_need_it(runs: Runs) -> None:
    (runs.out / "pruned").mkdir()
    for name in ("config.toml", "report.json"):
        (runs.out / "pruned" / name).touch()
    runs.pending = [
        *(run("bad"), run("one", after="bad"), run("other")),
        run("two", after="pruned"),
    ]
    first, second, third = sorted(runs.all())
    of = f"(its folder is {runs.out}"
    assert first == f"bad failed: it is bad; exit code 3, {runs.out}/logs/bad.txt {of}/bad)"
    assert second == f"one failed: not begun, as bad failed {of}/one)"
    assert third.startswith(f"two failed: {runs.out}/pruned/checkpoints has no checkpoint")
    assert (runs.out / "other" / "report.json").is_file()


def test_a_run_that_was_begun_goes_on(runs: Runs) -> None:
    (runs.out / "one").mkdir()
    (runs.out / "one" / "config.toml").touch()
    (runs.out / "two" / "trajectories").mkdir(parents=True)
    runs.pending = [run("one"), run("two")]
    assert runs.all() == []
    assert (runs.out / "one" / "words.txt").read_text() == f"--resume {runs.out}/one"
    assert "--run" in (runs.out / "two" / "words.txt").read_text()
    assert (runs.out / "two" / "gpus.txt").read_text() == os.environ.get("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("machine", "threads", "expected"),
    [
        (Machine(2), 1, 2),
        (Machine(2), 2, 1),
        (Machine(1), 4, 1),
        (Machine(8), 1, 3),
        (Machine(8, parallel=2), 1, 2),
        (Machine(8, ("0", "1")), 1, 2),
        (Machine(8, ("3",)), 1, 1),
    ],
)
def test_no_more_at_the_same_time_than_the_machine_has(
    runs: Runs, machine: Machine, threads: int, expected: int
) -> None:
    runs.machine = machine
    assert len(begun(runs, *(run(f"slow {n}", threads=threads) for n in range(3)))) == expected
    devices = [work.device for work in runs.working.values() if work.device is not None]
    assert devices == list(machine.devices)[:expected]


def begun(runs: Runs, *pending: PlannedRun) -> list[str]:
    """The runs that begin at once."""
    runs.pending = list(pending)
    try:
        runs._start()
        return list(runs.working)
    finally:
        runs._end()


def test_sampling_ahead_needs_threads_twice_and_servers_of_vllm_all_gpus(runs: Runs) -> None:
    ahead = run("slow one", None, "engine.deterministic=false", "train.max_staleness=1")
    assert begun(runs, ahead, run("slow two")) == ["slow one"]
    runs.machine = Machine(8, ("0", "1"))
    runs.working.clear()
    served = replace(run("served"), recipe=load_recipe("search", ["threads=1", "engine=vllm"]))
    assert begun(runs, run("slow one"), served) == ["slow one"]


def test_all_processes_end_when_this_one_is_interrupted(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.pending = [run("slow one"), run("slow two")]

    def interrupt(work: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "_look_at", interrupt)
    with pytest.raises(KeyboardInterrupt):
        runs.all()
    codes = [work.process.returncode for work in runs.working.values()]
    assert codes == [-signal.SIGTERM] * 2
