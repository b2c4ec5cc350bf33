"""The runs of a study as processes `turnwise train`, side by side as far as the machine goes.

A run that fails does not end the others. When this process is ended, so are the runs, which save
first.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.config import Recipe, dump_recipe
from turnwise.config.section import IS_MODEL
from turnwise.errors import DataError
from turnwise.monitor.display import Display
from turnwise.prctl import PDEATHSIG, prctl
from turnwise.storage.run_folder import with_whole_paths
from turnwise.storage.run_lock import is_locked
from turnwise.threads import processors
from turnwise_studies.folder import clear, is_begun, is_finished, weights_at_end
from turnwise_studies.plan import PlannedRun

UPDATES = 10
"""Updates of a cold start that count as much progress as one RL step."""
PAUSE = 0.2
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Machine:
    """The room for runs at the same time."""

    cores: int
    """Threads of all runs together; a run with more of its own runs alone."""
    devices: Sequence[str] = ()
    """GPUs by their names in CUDA_VISIBLE_DEVICES, one for each run; none on a CPU."""
    parallel: int | None = None
    """Runs at most."""

    @classmethod
    def here(cls, parallel: int | None = None) -> "Machine":
        import torch

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        count = torch.cuda.device_count()
        names = visible.split(",")[:count] if visible else map(str, range(count))
        return cls(len(processors()), tuple(names), parallel)


@dataclass
class Runs:
    out: Path
    machine: Machine
    display: Display
    pending: list[PlannedRun]
    program: Sequence[str] = (sys.executable, "-m", "turnwise", "train")
    working: dict[str, "_Work"] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Why runs failed, in a sentence each."""
    awaited: list[str] = field(default_factory=list)
    """Runs that a process of an earlier call still saves."""

    def all(self) -> list[str]:
        """Run all of them; returns what failed, a sentence each. Interrupted, it ends the processes
        first, which save."""
        units = sum(_units(run) - self._done(run) for run in self.pending)
        self.display.phase(f"{self.out.name}: {len(self.pending)} runs", units)
        try:
            while self.pending or self.working:
                self._start()
                time.sleep(PAUSE)
                for work in list(self.working.values()):
                    self._look_at(work)
        finally:
            self._end()
            self.display.close()
        return list(self.failures.values())

    def _fail(self, run: PlannedRun, why: str) -> None:
        self.failures[run.name] = f"{run.name} failed: {why} (its folder is {self.out / run.name})"

    def _start(self) -> None:
        """Start what the machine has room for, in order."""
        for run in list(self.pending):
            failed = next((name for name in run.needed if name in self.failures), None)
            if failed is not None:
                self.pending.remove(run)
                self._fail(run, f"not begun, as {failed} failed")
            elif self._can_begin(run):
                self.pending.remove(run)
                try:
                    self.working[run.name] = self._begun(run)
                except (DataError, OSError) as error:  # a checkpoint that is gone, a full disk
                    self._fail(run, str(error))

    def _can_begin(self, run: PlannedRun) -> bool:
        if not all(is_finished(self.out / name) for name in run.needed):
            return False
        if is_locked(self.out / run.name):
            if run.name not in self.awaited:
                self.awaited.append(run.name)
                self.display.say(f"{run.name}: another process still writes it; waiting")
            return False
        runs = [work.run for work in self.working.values()]
        if not runs:
            return True
        if self.machine.devices:  # vLLM's servers choose GPUs themselves
            served = any(one.recipe.engine.name == "vllm" for one in (*runs, run))
            if served or len(runs) >= len(self.machine.devices):
                return False
        threads = sum(_threads(one.recipe) for one in (*runs, run))
        most = self.machine.parallel
        return threads <= self.machine.cores and (most is None or len(runs) < most)

    def _begun(self, run: PlannedRun) -> "_Work":
        folder, recipe = self.out / run.name, with_whole_paths(run.recipe)
        if run.after is not None:
            weights = {"name": self._weights(run.after)}
            recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=weights)})
        models = {name: self._weights(trained) for name, trained in run.models.items()}
        recipe = recipe.with_texts(IS_MODEL, lambda name: models.get(name, name))
        file = self.out / "recipes" / f"{run.name}.toml"
        file.write_text(dump_recipe(recipe), encoding="utf-8")
        if is_begun(folder):
            arguments = ["--resume", str(folder)]
        else:
            clear(folder)
            arguments = [str(file), "--run", str(folder)]
        taken = {work.device for work in self.working.values()}
        device = next((one for one in self.machine.devices if one not in taken), None)
        own = device is not None and run.recipe.engine.name != "vllm"
        chosen = {"CUDA_VISIBLE_DEVICES": str(device)} if own else {}
        log = self.out / "logs" / f"{run.name}.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **chosen},
                start_new_session=True,  # Ctrl-C is this process's, which passes it on
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        return _Work(run, process, log, device, self._done(run))

    def _weights(self, name: str) -> str:
        return str(weights_at_end(self.out, name).resolve())

    def _look_at(self, work: "_Work") -> None:
        code = work.process.poll()
        done = _units(work.run) if code == 0 else self._done(work.run)
        if done > work.done:
            text = ", ".join(
                f"{name} {self._done(one.run)}/{_units(one.run)}"
                for name, one in self.working.items()
            )
            for _ in range(work.done, done):
                self.display.advance(text)
            work.done = done
        if code is None:
            return
        del self.working[work.run.name]
        if code or not is_finished(self.out / work.run.name):
            self._fail(work.run, _reason(code, work.log))
            self.display.say(self.failures[work.run.name])

    def _done(self, run: PlannedRun) -> int:
        folder, recipe = self.out / run.name, run.recipe
        updates = min(_lines(folder / "cold_start.jsonl"), recipe.sft.steps)
        return updates // UPDATES + min(_lines(folder / "metrics.jsonl"), recipe.train.steps)

    def _end(self) -> None:
        """End all processes, and wait until they have saved; Ctrl-C does not disturb that."""
        if not self.working:
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for work in self.working.values():
                if work.process.poll() is None:
                    work.process.terminate()
            for work in self.working.values():
                work.process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass
class _Work:
    run: PlannedRun
    process: "subprocess.Popen[bytes]"
    log: Path
    device: str | None
    done: int
    """Units that were shown as done."""


def _units(run: PlannedRun) -> int:
    """Units of progress: RL steps, the cold start's updates, one for the rest."""
    return run.recipe.sft.steps // UPDATES + run.recipe.train.steps + 1


def _threads(recipe: Recipe) -> int:
    """Threads of sampling and learning, at the same time where steps are sampled ahead."""
    return recipe.threads * (2 if recipe.train.max_staleness else 1)


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def _reason(code: int, log: Path) -> str:
    """The last line of turnwise's own, or else the last."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    own = [line.removeprefix("turnwise: ") for line in lines if line.startswith("turnwise: ")]
    said = (own or lines or ["nothing was said"])[-1]
    return f"{said.rstrip('.')}; exit code {code}, {log}"


def _end_with_parent() -> None:
    prctl(PDEATHSIG, signal.SIGTERM)
