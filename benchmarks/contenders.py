"""Contenders in processes of their own, which take turns: each does a round when it is told to.

A worker is a script that is run by the contender's own interpreter. It answers with one line of
JSON when it is ready and after each round. It times itself, so that neither starting nor talking
counts. While one works the others are stopped, since some poll while they wait. This module needs
nothing but the standard library, since every environment imports it. Not here: what a round is.
"""

import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATIENCE = 900.0
"""Seconds in which a contender must have answered: a compiler may be among what it starts with."""
OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that belong to the present interpreter."""
ENDING = 20.0
"""Seconds in which a contender must have ended after its last round."""


class Contender:
    """The side of the benchmark. Use it in a `with` statement, which ends the process."""

    def __init__(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> None:
        """Start `command`, a worker, with these variables besides the present ones. What it prints
        is shown only if it fails."""
        self.name = name
        inherited = dict(os.environ)
        if str(command[0]) != sys.executable:
            for variable in OWN:
                inherited.pop(variable, None)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the with
        self._process = subprocess.Popen(
            [str(part) for part in command],
            cwd=HERE,
            env={**inherited, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def round(self, **request: Any) -> dict[str, Any]:
        """Let it do a round as requested, and wait for what it says of it."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail("has ended")
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for its next line, after which it stands still until its next round. Ends the
        program, showing the contender's last words, when there is none."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self._fail(f"has said nothing for {PATIENCE:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._fail("has ended")
        self._signal(signal.SIGSTOP)
        found: dict[str, Any] = json.loads(line)
        return found

    def _signal(self, number: int) -> None:
        """To it and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _fail(self, what: str) -> None:
        self._log.seek(0)
        last = self._log.read().decode(errors="replace")[-4000:]
        raise SystemExit(f"{last}\n{self.name} {what}")


class Stopwatch:
    """Of one round, from when it is made: by the clock, and by the processor."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Seconds so far; those of the processor are those of all threads of this process."""
        clock, processor = self._start
        return {
            "seconds": time.perf_counter() - clock,
            "processor": time.process_time() - processor,
        }


class Worker:
    """The side of the contender. From now on what others print goes to stderr."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def answer(self, **found: Any) -> dict[str, Any]:
        """Say something, and wait for what is requested of the next round. When there is none, ends
        the process and all that it has started: no library's threads or servers are waited for."""
        self._answers.write(json.dumps(found) + "\n")
        self._answers.flush()
        line = sys.stdin.readline()
        if not line:
            os.killpg(os.getpid(), signal.SIGKILL)
        request: dict[str, Any] = json.loads(line)
        return request


def alternate(
    contenders: Sequence[Contender], rounds: int, **request: Any
) -> dict[str, list[dict[str, Any]]]:
    """What each says of each round, all as requested; who is first changes."""
    answers: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in contenders}
    for index in range(rounds):
        turn = index % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            answers[contender.name].append(contender.round(**request))
    return answers


def ratio(slower: Sequence[float], faster: Sequence[float]) -> str:
    """How much faster, round by round: median (lowest – highest)."""
    values = [a / b for a, b in zip(slower, faster, strict=True)]
    return f"{statistics.median(values):.2f} ({min(values):.2f} – {max(values):.2f})"
