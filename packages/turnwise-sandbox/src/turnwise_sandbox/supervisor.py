"""The process that starts the code of a sandbox, watches it, kills what is left, and reports.

Standard library only. It starts inside the isolation, waits for one job, and ends with it. It holds
the control connection, which the code does not have, so that exit status, use and files are its own
observation and not what the code says. The host keeps the deadline and the limit of output.
"""

import os
import resource
import select
import signal
import sys
import time

from turnwise.prctl import DUMPABLE, prctl
from turnwise_sandbox import artefacts, processes, protocol, start, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

LOOK_EVERY = 0.05
"""Seconds between two looks at the memory and processor time of all processes."""


def guard(
    spec: protocol.Message,
    stdout: int,
    stderr: int,
    control: int,
    channel: int,
    events: int | None = None,
) -> None:
    """Do the one job of this sandbox. Returns when the host has the report, or is gone.

    All but `spec` are descriptors; `events`, of a container's control group, counts what was killed
    for lack of memory.
    """
    try:
        waiting = start.prepare(spec, stdout, stderr, channel)
        # Only the code has these ends now, and what it starts: the streams end with them.
        for descriptor in (stdout, stderr, channel):
            os.close(descriptor)
        # What takes time is done by now, so that a job begins as soon as it comes.
        protocol.send(control, {"event": "ready"})
        job = protocol.receive(control)
        if job is None or job["op"] != "start":
            return
        measured = "scratch" in spec and usage.all_is_counted()
        start.hand_over(spec, job, waiting)
    except start.UnwritableError as error:
        protocol.send(control, {"event": "unwritable", "error": str(error)})
        return
    except (OSError, ValueError) as error:
        protocol.send(control, {"event": "failed", "error": str(error)})
        return
    protocol.send(control, {"event": "started", "measured": measured})
    report = _Watch(spec, waiting.pid).run(control)
    if report is not None:
        if events is not None and usage.kills(events):
            report["why"] = report["why"] or "out_of_memory"
        # After the end of all processes: files do not change while they are read.
        report |= _gathered(spec, job["collect"])
        protocol.send(control, report)


class _Watch:
    def __init__(self, spec: protocol.Message, code: int) -> None:
        self.limits = spec["limits"]
        self.scratch = spec.get("scratch", ())
        """File systems in memory that are the sandbox's own, if it has any."""
        self.group = spec["tier"] == "docker"
        """Whether a control group counts the buffers of sockets."""
        self.children = processes.Children(code)
        self.peak = 0

    def run(self, control: int) -> protocol.Message | None:
        """Wait for the end of the code, a limit of all its processes, or the host's word; then kill
        what is left. None when the host is gone."""
        begun, why = time.monotonic(), ""
        # It wakes the poll at the end of the code: a short job does not wait for the next look.
        ended = os.pidfd_open(self.children.code)
        poller = select.poll()
        poller.register(control, select.POLLIN)
        poller.register(ended, select.POLLIN)
        while self.children.status is None and not why:
            ready = {descriptor for descriptor, _ in poller.poll(LOOK_EVERY * 1000)}
            # Anything that the host says now is that it has to stop.
            if control in ready:
                if protocol.receive(control) is None:
                    processes.end(self.children)
                    return None
                why = "stopped"
            elif ended not in ready:
                why = self._excess()
            self.children.reap()
        wall = time.monotonic() - begun
        killed, survivors = processes.end(self.children)
        # The kernel saw each process at its largest, but alone; the looks saw all, but not always.
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        return {
            "event": "ended",
            "why": why,
            "status": self.children.status,
            "seconds": wall,
            "cpu_seconds": processes.use()[0],
            "peak_memory": max(largest, self.peak),
            "killed": killed,
            "survivors": survivors,
        }

    def _excess(self) -> str:
        """The limit that all processes together have exceeded, if any."""
        seconds, there = processes.use()
        most, buffers = self.limits["memory"], 0
        if self.scratch:
            buffers = 0 if self.group else usage.sockets()
            size, count = usage.files(self.scratch)
            if count > self.limits["files"]:
                return "out_of_memory"
            most += size  # `disk` limits these
        held = usage.memory(there, most - buffers) + buffers
        self.peak = max(self.peak, held)
        if held > most:
            return "out_of_memory"
        return "cpu_limit" if seconds > self.limits["cpu_seconds"] else ""


def _gathered(spec: protocol.Message, patterns: list[str]) -> protocol.Message:
    if not patterns:
        return {"files": {}, "refused": {}}
    limits = spec["limits"]
    taken, refused = artefacts.gather(spec["work"], patterns, limits["disk"], limits["files"])
    return {"files": protocol.pack_files(taken), "refused": refused}


def main_in_bubblewrap(spec: protocol.Message, descriptors: list[int]) -> "NoReturn":
    """Guard as process 1 of a sandbox, out of reach of the code's own user."""
    # /proc shows the code neither this process's memory nor its descriptors.
    prctl(DUMPABLE, 0)
    if "user" in spec:
        for place in spec["scratch"]:
            os.chown(place, spec["user"], spec["user"])
    main(spec, descriptors)


def main(spec: protocol.Message, descriptors: list[int]) -> "NoReturn":
    """Guard, then end this process without running what the launcher has left to do."""
    status = 1
    # The launcher's, from which this process was forked; Ctrl-C is the host's to handle.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        guard(spec, *descriptors)
        status = 0
    except ConnectionError:
        status = 0  # the host is gone, and nobody waits for a report
    except BaseException:  # noqa: BLE001 - the host sees that there is no report
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)
