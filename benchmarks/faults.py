"""Faults on purpose: what becomes of small runs whose processes are killed, stopped or told to end.

    .venv/bin/python -m benchmarks.faults --faults 100 --json runs/faults.json
    .venv/bin/python -m benchmarks.faults --faults 4 --kinds "rank killed" "worker killed"

A run with two learners, in lockstep, is played once without a fault, and one with two workers
beside these. Then runs of the same recipes get `--each` faults, each at a random moment of a random
step; one that ends is resumed, until it is done. It must end with the weights, the metrics and the
episodes of the run without a fault, and leave no process. A fault's seconds to recover are those
from it until the step that it fell into is done, restart included; beside them stand the seconds of
a step without one. The table grows with each run.
"""

import argparse
import json
import math
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.machine import describe
from benchmarks.tables import table
from cluster_tests.workers.processes import descendants, left_after

RECIPE = """
name = "faults"
threads = 1
[model]
name = "tiny"
[environment]
name = "{environment}:Errand"
latency = {{ mean = 0.05, spread = 1.0 }}
[rollout]
max_turns = 3
max_turn_tokens = 24
max_tokens = 400
max_seconds = 10
[algorithm]
name = "ppo"
kl_coefficient = 0.05
[learning]
learning_rate = 1e-3
[train]
steps = {steps}
tasks_per_step = 2
group_size = 4
checkpoint_every = 2
[evaluation]
tasks = 0
[cluster]
learners = 2
seconds = 20
"""
ALONE, WORKERS = "", "workers = 2\n"
"""Lines of a recipe, for what plays beside the learners."""
DEADLINE = 600.0
"""Seconds that one process of a run may take."""
LINGER = 90.0
"""Seconds after a run's end in which its processes may vanish; Ray's own take up to a minute."""


@dataclass(frozen=True)
class Kind:
    """A fault of one kind."""

    victim: str
    """Part of the command line of the process that it befalls; empty for the run's own."""
    inflict: Callable[[int], None]
    codes: tuple[int, ...]
    """Exit codes that the run may end with; 0 is that of a run that goes on, and the negative one
    of a signal that of a process which had only begun."""
    beside: str = ALONE
    """The processes of the run that it befalls, beside the learners."""


def _send(number: signal.Signals) -> Callable[[int], None]:
    return lambda process: os.kill(process, number)


def _fill_disk(process: int) -> None:
    """Whatever the process writes to a file from now on fails, as on a full disk."""
    resource.prlimit(process, resource.RLIMIT_FSIZE, (1, 1))


RANK, ACTOR = "turnwise_cluster.learners.worker", "ray::_Actor"
KINDS = {
    "run killed": Kind("", _send(signal.SIGKILL), (-signal.SIGKILL, 0), WORKERS),
    "run preempted": Kind("", _send(signal.SIGUSR1), (75, -signal.SIGUSR1, 0)),
    "run told to end": Kind("", _send(signal.SIGTERM), (143, -signal.SIGTERM, 0)),
    "disk full": Kind("", _fill_disk, (3, 0)),
    "rank killed": Kind(RANK, _send(signal.SIGKILL), (3, 0)),
    "rank hangs": Kind(RANK, _send(signal.SIGSTOP), (3, 0)),
    "worker killed": Kind(ACTOR, _send(signal.SIGKILL), (0,), WORKERS),
    "worker hangs": Kind(ACTOR, _send(signal.SIGSTOP), (0,), WORKERS),
}


@dataclass
class Fault:
    """What came of one fault."""

    kind: str
    step: int
    begun: float
    """By the clock of this process."""
    code: int | None = None
    """The exit code, where the run ended by it."""
    seconds: float | None = None
    """Until the step that it fell into was done."""


@dataclass
class Run:
    """A run that is played to its end, however often it has to be resumed."""

    recipe: Path
    folder: Path
    faults: list[Fault] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """All processes that it ever had."""
    ends: list[str] = field(default_factory=list)
    """What was wrong: exit codes that no fault explains."""

    def play(self, due: list[tuple[str, int, float]]) -> None:
        """Play it with faults: the kind, the steps done before it, and the seconds after these."""
        waiting = list(due)
        while True:
            given = ["--resume", self.folder] if self.folder.exists() else [self.recipe]
            target = [] if self.folder.exists() else ["--run", self.folder]
            before = len(self.faults)
            with _process(["train", *given, *target], self.folder) as process:
                code = self._watch(process, waiting)
            if code == 0:
                self.ends += [f"{kind} was not inflicted" for kind, _, _ in waiting]
                self._note(math.inf)  # what fell into the end of the last step is over as well
                return
            mine = self.faults[before:]
            blamed = [fault for fault in mine if code in KINDS[fault.kind].codes]
            if not blamed:
                self.ends.append(f"exit code {code} after {[fault.kind for fault in mine]}")
                return
            blamed[-1].code = code

    def _watch(self, process: "subprocess.Popen[bytes]", due: list[tuple[str, int, float]]) -> int:
        """Inflict what is due, and say when steps are done, until the process has ended."""
        since: float | None = None
        begun = time.monotonic()
        while process.poll() is None and time.monotonic() - begun < DEADLINE:
            self.seen |= {process.pid, *descendants(process.pid)}
            done = self.done
            since = since or (time.monotonic() if due and done >= due[0][1] else None)
            is_due = since is not None and time.monotonic() - since >= due[0][2]
            if is_due and self._inflict(due[0][0], done, process.pid):
                due.pop(0)
                since = None
            self._note(done)
            time.sleep(0.1)
        if process.poll() is None:
            process.kill()
            self.ends.append(f"not done within {DEADLINE:g} s")
        code = process.wait()
        self._note(self.done)
        return code

    def _inflict(self, kind: str, done: int, driver: int) -> bool:
        """Whether there was a process of the kind that a fault could befall, after so many
        steps."""
        victim = KINDS[kind].victim
        there = [one for one in sorted(descendants(driver)) if victim in _command(one)]
        if victim and not there:
            return False
        fault = Fault(kind, done, time.monotonic())
        try:
            KINDS[kind].inflict(there[-1] if victim else driver)
        except ProcessLookupError:  # it has ended since
            return False
        self.faults.append(fault)
        return True

    def _note(self, done: float) -> None:
        for fault in self.faults:
            if fault.seconds is None and done > fault.step:
                fault.seconds = time.monotonic() - fault.begun

    @property
    def done(self) -> int:
        """Steps whose metrics are written."""
        metrics = self.folder / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.is_file() else 0

    def left(self) -> int:
        """Processes that are still there after a time."""
        left = left_after(self.seen, LINGER)
        for process in left:
            print(f"left behind: {process} {_command(process)}", flush=True)
        return len(left)


@dataclass
class Played:
    """What came of runs with faults."""

    faults: list[Fault] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    """Runs that are not the run without a fault, and how."""
    left: int = 0
    """Processes that outlived their run."""
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds of a step without a fault, by what is beside the run's process."""

    def add(self, other: "Played") -> None:
        """Take another's to these."""
        self.faults += other.faults
        self.differ += other.differ
        self.left += other.left
        self.steps |= other.steps


@contextmanager
def _process(arguments: list[Any], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of a run. What it prints is in a file beside the run's folder, which another
    process writes, as a full disk of the run is no full disk of its user's."""
    command = [sys.executable, "-m", "turnwise", *map(str, arguments)]
    printed = folder.with_suffix(".log").open("ab")
    with printed, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=printed) as copying:
        process = subprocess.Popen(command, stdout=copying.stdin, stderr=copying.stdin)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def differences(run: Path, whole: Path, steps: int) -> list[str]:
    """In what a run differs from the one without a fault."""
    last = f"checkpoints/step-{steps:06d}"
    if not (run / last).is_dir():
        return ["it has no last checkpoint"]
    wrong = []
    if weights(run / last) != weights(whole / last):
        wrong.append("other weights")
    if (run / "metrics.jsonl").read_text() != (whole / "metrics.jsonl").read_text():
        wrong.append("other metrics")
    if episodes(run) != episodes(whole):
        wrong.append("other episodes")
    return wrong


def weights(checkpoint: Path) -> dict[str, bytes]:
    """The files of a checkpoint's weights, byte for byte."""
    found = {file.name: file.read_bytes() for file in checkpoint.glob("model*.safetensors")}
    assert found, f"{checkpoint} has no weights"
    return found


def episodes(run: Path) -> dict[str, list[Any]]:
    """The episodes of each step, by what names and ends them."""
    files = sorted((run / "trajectories").glob("step-*.parquet"))
    columns = ["group", "episode", "seed", "outcome", "reward"]
    return {file.stem: pq.read_table(file, columns=columns).to_pylist() for file in files}


def summary(faults: list[Fault]) -> list[dict[str, Any]]:
    """A row for each kind of fault."""
    rows = []
    for kind in KINDS:
        mine = [fault for fault in faults if fault.kind == kind]
        seconds = [one.seconds for one in mine if one.seconds is not None]
        if not mine:
            continue
        codes = sorted({str(one.code) for one in mine if one.code is not None})
        rows.append(
            {
                "fault": kind,
                "injected": len(mine),
                "exit codes": ", ".join(codes) or "goes on",
                "recovered": len(seconds),
                "median, s": round(statistics.median(seconds), 1) if seconds else "-",
                "longest, s": round(max(seconds), 1) if seconds else "-",
            }
        )
    return rows


def play(kinds: list[str], beside: str, options: argparse.Namespace, place: Path) -> Played:
    """Play runs with faults of some kinds, all of one recipe, beside the run without any."""
    environment = Path(__file__).with_name("workers_environment.py")
    recipe = place / "faults.toml"
    recipe.write_text(RECIPE.format(environment=environment, steps=options.steps) + beside)
    whole = Run(recipe, place / "whole")
    whole.play([])
    assert not whole.ends, whole.ends
    lines = (whole.folder / "timing.jsonl").read_text().splitlines()
    step = statistics.median(json.loads(line)["seconds/step"] for line in lines)
    name = beside.strip() or "learners = 2"
    print(f"{name}: {step:.2f} s a step", flush=True)
    played = Played(left=whole.left(), steps={name: round(step, 2)})
    stream = random.Random(f"{options.seed} {beside}")
    stream.shuffle(kinds)
    for first in range(0, len(kinds), options.each):
        chosen = kinds[first : first + options.each]
        places = sorted(stream.sample(range(1, options.steps), len(chosen)))
        due = [(kind, at, stream.uniform(0, step)) for kind, at in zip(chosen, places, strict=True)]
        run = Run(recipe, place / f"run-{first}")
        run.play(due)
        problems = run.ends + differences(run.folder, whole.folder, options.steps)
        played.differ += [f"a run with {', '.join(chosen)}: {problem}" for problem in problems]
        played.left += run.left()
        played.faults += run.faults
        print(f"{', '.join(chosen)}: {problems or 'the same run'}", flush=True)
        print(table(summary(played.faults)), flush=True)
    return played


@contextmanager
def _place(kept: Path | None, beside: str) -> Iterator[Path]:
    """A folder for runs of one recipe."""
    if kept is None:
        with tempfile.TemporaryDirectory() as passing:
            yield Path(passing)
        return
    place = kept / (beside.partition(" ")[0] or "learners")
    place.mkdir(parents=True)
    yield place


def main() -> None:
    """Play the runs, print a table, write the figures; exit code 1 where a run differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--each", type=int, default=5, help="faults of one run")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--place", type=Path, help="where runs stay; else they are removed")
    options = parser.parse_args()
    machine = describe(1)
    print(table([machine]), flush=True)
    kinds = [options.kinds[n % len(options.kinds)] for n in range(options.faults)]
    played = Played()
    for beside in (ALONE, WORKERS):
        mine = [kind for kind in kinds if KINDS[kind].beside == beside]
        if mine:
            with _place(options.place, beside) as place:
                played.add(play(mine, beside, options, place))
    rows = summary(played.faults)
    print(table(rows))
    print(f"runs that differ: {played.differ or 'none'}; processes left: {played.left}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {"machine": machine, "steps": played.steps, "rows": rows}
        figures |= {"differ": played.differ, "left": played.left}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    raise SystemExit(bool(played.differ or played.left))


if __name__ == "__main__":
    main()
