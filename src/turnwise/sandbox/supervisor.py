"""The process that starts the code of a sandbox, watches it, kills what is left, and reports.

Standard library only. It is forked inside the isolation, waits for one job, and ends with it. Where
there are namespaces the code has one of processes of its own, in which the supervisor has no
number: no signal, no limit and no priority can be set from inside on what cannot be named. It holds
the control connection, which the code does not have, so that exit status, use and files are its own
observation and not what the code says.

Not here: how the code is started (start.py), which its processes are (processes.py); the deadline
and the limit of output, which the host keeps; isolation, which is set up before (namespaces.py,
bubblewrap.py, rlimits.py).
"""

import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from typing import NoReturn

from turnwise.sandbox import artefacts, cgroups, processes, protocol, start, usage

LOOK_EVERY = 0.05
"""Seconds between two looks at the memory and processor time of all processes."""


def guard(
    spec: protocol.Message,
    stdout: int,
    stderr: int,
    control: int,
    channel: int,
    events: int | None = None,
    members: int | None = None,
) -> None:
    """Do the one job of this sandbox. Returns when the host has the report, or is gone.

    All but `spec` are descriptors; the last two, of a control group, report what was killed for
    lack of memory, and take the code in (see cgroups.py).
    """
    connection = socket.socket(fileno=control)
    try:
        waiting = start.prepare(spec, stdout, stderr, channel)
        if members is not None:
            os.write(members, str(waiting.pid).encode())
        for descriptor in (stdout, stderr, channel):
            os.close(descriptor)
        connection.sendall(protocol.encode({"event": "ready"}))
        job = protocol.receive(connection)
        if job is None or job["op"] != "start":
            return
        measured = "init" in spec and usage.all_is_counted()  # before the code can end process 1
        start.hand_over(spec, job, waiting)
    except start.UnwritableError as error:
        connection.sendall(protocol.encode({"event": "unwritable", "error": str(error)}))
        return
    except (OSError, ValueError) as error:
        connection.sendall(protocol.encode({"event": "failed", "error": str(error)}))
        return
    connection.sendall(protocol.encode({"event": "started", "measured": measured}))
    report = _Watch(spec, waiting.pid).run(connection)
    if report is not None:
        if events is not None and cgroups.kills(events):
            report["why"] = report["why"] or "out_of_memory"
        report |= _gathered(spec, report.pop("collect") or job["collect"])
        connection.sendall(protocol.encode(report))


class _Watch:
    """The supervisor's work from the start of the code to its end."""

    def __init__(self, spec: protocol.Message, code: int) -> None:
        self.limits = spec["limits"]
        self.own_files = spec["work"] if "init" in spec else ""
        """A folder of the file system in memory that is the sandbox's own, if it has one."""
        self.children = processes.Children(code)
        self.processes = processes.processes_of(spec)
        self.peak = 0

    def run(self, connection: socket.socket) -> protocol.Message | None:
        """Wait for the end of the code, a limit of all its processes, or the host's word; then kill
        what is left. None when the host is gone."""
        begun, why, collect = time.monotonic(), "", None
        ended = os.pidfd_open(self.children.code)
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        poller.register(ended, select.POLLIN)
        while self.children.status is None and not why:
            ready = {descriptor for descriptor, _ in poller.poll(LOOK_EVERY * 1000)}
            if connection.fileno() in ready:
                message = protocol.receive(connection)
                if message is None:
                    self.processes.end(self.children)
                    return None
                why, collect = "stopped", message["collect"]
            elif ended not in ready:
                why = self._excess()
            self.children.reap()
        wall = time.monotonic() - begun
        killed, survivors = self.processes.end(self.children)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        return {
            "event": "ended",
            "why": why,
            "collect": collect,
            "status": self.children.status,
            "seconds": wall,
            "cpu_seconds": self.processes.use()[0],
            "peak_memory": max(largest, self.peak),
            "killed": killed,
            "survivors": survivors,
        }

    def _excess(self) -> str:
        """The limit that all processes together have exceeded, if any."""
        seconds, there = self.processes.use()
        most, buffers = self.limits["memory"], 0
        if self.own_files:
            buffers = usage.sockets()
            files = os.statvfs(self.own_files)
            most += (files.f_blocks - files.f_bfree) * files.f_frsize  # `disk` limits these
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


def main(spec: protocol.Message, descriptors: list[int]) -> NoReturn:
    """Guard, then end this process without running what the launcher has left to do."""
    status = 1
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        guard(spec, *descriptors)
        status = 0
    except ConnectionError:
        status = 0  # the host is gone, and nobody waits for a report
    except BaseException:  # noqa: BLE001 - the host sees that there is no report
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)
