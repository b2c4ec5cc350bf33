"""An audit in a process of its own, which is ended where the environment stands still.

A call that holds the interpreter's lock can be ended in no other way. The process says after each
probe what it has found, so that only those to come are lost with it.
"""

import asyncio
import faulthandler
import os
import re
import signal
import sysconfig
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import turnwise
import turnwise_environments.choosing
import turnwise_trust
from turnwise.errors import DataError, TurnwiseError, UserError, located
from turnwise.monitor.display import Display
from turnwise.storage.audits import Finding
from turnwise_trust.audit.keeping import joined, keep, kept
from turnwise_trust.audit.probes import PROBES
from turnwise_trust.audit.quick import CODE, Told, findings, paged
from turnwise_trust.audit.subject import subject_of, titled
from turnwise_trust.page import Page

STILL = 0.3
"""The share of the time after which a call stands still. No episode is begun in the last such
share, so that the audit ends in time."""
ENDING = 5.0
"""Seconds that the process may take to end after its last probe."""
CALLING = (
    *(Path(one.__path__[0]) for one in (turnwise, turnwise_trust)),
    Path(turnwise_environments.choosing.__file__),
)
"""Code that calls an environment's."""
STANDARD, INSTALLED = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))

Named = tuple[str, Mapping[str, Any], int, int]
"""An environment's name and options, the most tasks to play, and a seed."""


class AuditStopped(KeyboardInterrupt):
    """An audit was interrupted; its page has what was found until then."""

    def __init__(self, page: Page, file: Path | None) -> None:
        how = "the same command goes on" if file else "with --keep FILE an audit can go on"
        super().__init__(f"interrupted; {how}")
        self.page = page


def audited_apart(
    name: str,
    options: Mapping[str, Any],
    tasks: int,
    seed: int,
    seconds: float,
    display: Display,
    file: Path | None = None,
) -> Page:
    """Audit an environment in another process, in so many seconds. What is found is kept in the
    file, where what it has is not measured again. Raises ConfigError or DataError for an
    environment that cannot be made with these options, or raises while it is made, and
    AuditStopped on Ctrl-C."""
    title = titled(name, options, seed)
    before = told = kept(file, title)
    names = [one for one in PROBES if one in before[1]]
    if not names:
        return paged(title, *told)
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with TemporaryDirectory() as folder:
        stack = Path(folder) / "stack"
        arguments = (sender, stack, seconds, (name, options, tasks, seed), names)
        process = context.Process(target=_audit, args=arguments)
        process.start()
        sender.close()
        at = "its tasks and first episodes"
        try:
            told = joined(before, _received(receiver))
            display.phase(f"audit of {name}", len(names))
            for at in names:
                told = joined(before, _received(receiver))
                keep(file, title, told)
                display.advance(f"{at}: done")
            process.join(ENDING)
        except EOFError:
            process.join()
            told = ([_stopped(at, stack.read_text(), process.exitcode), *told[0]], told[1])
        except KeyboardInterrupt:
            if not told[0]:
                raise
            raise AuditStopped(paged(title, *told), file) from None
        finally:
            display.close()
            process.kill()  # it may have no group of its own yet
            with suppress(ProcessLookupError):  # it has ended, and all that it started
                os.killpg(process.pid or 0, signal.SIGKILL)
    return paged(title, *told)


def _received(receiver: Connection) -> Told:
    told: Told | TurnwiseError = receiver.recv()
    if isinstance(told, TurnwiseError):
        raise told
    return told


def _audit(
    sender: Connection, stack: Path, seconds: float, named: Named, names: Sequence[str]
) -> None:
    """The other process: sends what there is after each probe, or an error."""
    os.setsid()
    os.dup2(2, 1)  # what the environment and programs of attacks print is not the page
    end = time.monotonic() + seconds
    with stack.open("w") as file:
        faulthandler.enable(file)

        def beat() -> None:
            left = max(0.1, min(STILL * seconds, end - time.monotonic()))
            faulthandler.dump_traceback_later(left, exit=True, file=file)

        beat()
        try:
            subject = subject_of(*named, (1 - STILL) * seconds, beat)
        except TurnwiseError as error:
            # As a text: what is made of more than its text cannot be sent.
            sender.send(DataError(str(error)) if isinstance(error, UserError) else error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised where it was asked for
            sender.send(DataError(located(error)))
        else:
            sender.send(([], names))
            # One loop for all: a thread watches each, and a stack shows no more than 100 threads.
            with asyncio.Runner() as runner:
                probes = {one: PROBES[one] for one in names}
                for told in findings(replace(subject, run=runner.run), probes):
                    sender.send(told)
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()


def _stopped(at: str, stack: str, code: int | None) -> Finding:
    """The finding of a process that has ended before its last probe, and at which."""
    place, still = _place(stack), stack.startswith("Timeout")
    if still:
        note = f"{place or 'a thread or a program that it began'} stands still"
        remedy = "Give it a deadline of its own; if it is at work, give it more time: --seconds."
    else:
        note = f"{place or 'its own exit or crash'} ended the process of the audit, code {code}"
        remedy = "Have it raise, and not end the process that it runs in."
    return Finding(CODE, passed=False, note=f"{note}, at: {at}", remedy=remedy)


def _place(stack: str) -> str:
    """The environment's function that was called, in a stack of threads, the last call first."""
    for thread in stack.split("\n\n"):
        frames = re.findall(r'File "([^<"]+)", line (\d+) in (\S+)', thread)
        own = [frame for frame in frames if _is_environment(Path(frame[0]))]
        if own:
            file, line, function = own[-1]
            return f"{function} ({file}, line {line})"
    return ""


def _is_environment(file: Path) -> bool:
    standard = file.is_relative_to(STANDARD) and not file.is_relative_to(INSTALLED)
    return not standard and not any(file.is_relative_to(one) for one in CALLING)
