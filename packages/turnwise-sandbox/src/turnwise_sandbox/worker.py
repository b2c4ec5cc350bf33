"""The host's side of one sandbox: gives it its job, reads what it writes, keeps the deadline."""

import json
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from turnwise.errors import InfrastructureError
from turnwise.sandbox.result import Output
from turnwise.sandbox.settings import Limits
from turnwise_sandbox import protocol
from turnwise_sandbox.launch import START_SECONDS, Starter, Ticket

STOP_SECONDS = 5.0
"""Time for a supervisor to kill, gather and report, before it is killed itself."""
_LONGEST_LINE = 1 << 16
_LARGEST_READ = 1 << 16

End = Literal["ended", "cell", "timeout", "output_limit", "broken"]


@dataclass(frozen=True)
class Job:
    """The job of a sandbox: one of `source`, `command` or `session`."""

    source: str = ""
    command: Sequence[str] = ()
    session: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Written to the work folder before, by relative path."""
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    collect: Sequence[str] = ()
    """Allow-list of what is gathered from the work folder afterwards; see `artefacts.matches`."""


class Capture:
    """The beginning and the end of a stream, and how long it was."""

    def __init__(self, shown: int) -> None:
        self.half = max(1, shown // 2)
        self.head = bytearray()
        self.tail = bytearray()
        self.count = 0

    def add(self, data: bytes) -> None:
        self.count += len(data)
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        # Not at each read: deleting at the front moves all the rest.
        if len(self.tail) > 2 * self.half + _LARGEST_READ:
            del self.tail[: -self.half]

    def output(self) -> Output:
        return Output(bytes(self.head), bytes(self.tail[-self.half :]), self.count)


class Worker:
    """One sandbox, from the request for it until it is gone."""

    def __init__(self, launch: Starter, spec: protocol.Message, limits: Limits) -> None:
        """Ask for it. Raises InfrastructureError where this process may not have more
        descriptors."""
        self.launch, self.limits = launch, limits
        self.report: protocol.Message | None = None
        self.failure = ""
        self.started = 0.0
        self.begun = False
        self.unwritable = ""
        """Why the job's files could not be written, if that is why it has not begun."""
        self.limited_by = launch.limited_by
        self.token = ""
        self.cell_error: str | None = None
        self._buffers = {"control": bytearray(), "channel": bytearray()}
        mine, theirs = _connections()
        self.open = mine[:2]
        self.control, self.channel = (socket.socket(fileno=one) for one in mine[2:])
        self.streams = {one: Capture(limits.shown) for one in self.open}
        self.ticket: Ticket = launch.start(spec, theirs)
        # Copies are with the launcher: a stream ends when the sandbox closes its end.
        for descriptor in theirs:
            os.close(descriptor)
        for descriptor in self.open:
            os.set_blocking(descriptor, False)

    def begin(self, job: Job) -> bool:
        """Give it its job; True once the code runs, False (see `failure`) if it cannot."""
        message = {
            "op": "start",
            "source": job.source,
            "command": list(job.command),
            "session": job.session,
            "files": protocol.pack_files(job.files),
            "stdin": protocol.pack_files({"": job.stdin}),
            "environment": dict(job.environment),
            "collect": list(job.collect),
        }
        self.control.settimeout(START_SECONDS)
        try:
            self.control.sendall(protocol.encode(message))
        except OSError as error:
            self.failure = self._reason() or f"it took no job ({error})"
            return False
        end = self._pump(time.monotonic() + START_SECONDS, until_begun=True)
        if not self.begun and not self.unwritable:
            reason = "it did not start in time" if end == "timeout" else "it ended before it began"
            self.failure = self.failure or self._reason() or reason
        return self.begun

    def wait(self) -> End:
        """Let the code run to its end or to a limit that the host keeps."""
        return self._pump(self.started + self.limits.seconds)

    def run_cell(self, source: str) -> End:
        """Let a session run one cell, to its end or to a limit; see `cell_error`, `outputs`."""
        self.streams = {one: Capture(self.limits.shown) for one in self.streams}
        # A new word for each cell: no message of an earlier one is taken for its end.
        self.token, self.cell_error = secrets.token_hex(8), None
        self.started = time.monotonic()
        self.channel.settimeout(self.limits.seconds)
        line = json.dumps({"token": self.token, "source": source}).encode() + b"\n"
        try:
            self.channel.sendall(line)
        except TimeoutError:
            return "timeout"
        except OSError:
            pass  # it has ended: the report says how
        return self._pump(self.started + self.limits.seconds)

    def stop(self) -> bool:
        """Kill the code, and get the report; whether there is one."""
        if self.report is None:
            self.control.settimeout(STOP_SECONDS)
            try:
                self.control.sendall(protocol.encode({"op": "stop"}))
            except OSError:
                return False
            self._pump(time.monotonic() + STOP_SECONDS, until_report=True)
        return self.report is not None

    def was_killed(self) -> bool:
        self.ticket.over.wait(STOP_SECONDS)
        return self.ticket.status is not None and os.WIFSIGNALED(self.ticket.status)

    def kill(self) -> bool:
        """Kill the sandbox from outside; whether it was gone in time."""
        self.launch.kill(self.ticket)
        return self.ticket.over.wait(STOP_SECONDS)

    def outputs(self) -> tuple[Output, Output]:
        out, error = (capture.output() for capture in self.streams.values())
        return out, error

    def files(self) -> dict[str, bytes]:
        return protocol.unpack_files((self.report or {}).get("files", {}))

    def close(self) -> None:
        """Let go of it. What is left in it is killed; `ticket.over` says when it is gone."""
        self.launch.kill(self.ticket)
        for descriptor in self.streams:
            os.close(descriptor)
        self.control.close()
        self.channel.close()

    def _reason(self) -> str:
        return self.ticket.failure if self.ticket.over.wait(1.0) else ""

    def _pump(
        self, deadline: float, *, until_begun: bool = False, until_report: bool = False
    ) -> End:
        """Read everything that comes until something ends."""
        if self.report is not None:
            self._drain()
            return "output_limit" if self._too_much() else "ended"
        poller = select.poll()
        sockets = {self.control.fileno(): "control", self.channel.fileno(): "channel"}
        for descriptor in (*self.open, *sockets):
            poller.register(descriptor, select.POLLIN)
        end: End | None = None
        while end is None:
            left = deadline - time.monotonic()
            ready = [descriptor for descriptor, _ in poller.poll(max(0, left) * 1000)]
            if left <= 0 and not until_report:
                return "timeout"
            if left <= 0:
                return "broken"
            for descriptor in ready:
                if descriptor in self.streams:
                    if not self._read_stream(descriptor):
                        poller.unregister(descriptor)
                elif sockets[descriptor] == "control":
                    end = self._read_control() or end
                elif not self._read_channel():
                    poller.unregister(descriptor)
                elif self.cell_error is not None and not until_report:
                    end = end or "cell"
            if end is None and until_begun and self.begun:
                return "ended"
            if not until_report and not until_begun and self._too_much():
                return "output_limit"
        self._drain()
        return end if not self._too_much() or until_report else "output_limit"

    def _too_much(self) -> bool:
        return any(capture.count > self.limits.output for capture in self.streams.values())

    def _drain(self) -> None:
        """Take what was written before the end; it is in the pipes already."""
        for descriptor in list(self.open):
            # More than a pipe can hold: beyond it some process still writes.
            for _ in range(64):
                if not self._read_stream(descriptor):
                    break

    def _read_stream(self, descriptor: int) -> bool:
        """Read once; False when there is nothing (more)."""
        try:
            data = os.read(descriptor, _LARGEST_READ)
        except BlockingIOError:
            return False
        if not data:
            self.open.remove(descriptor)
        self.streams[descriptor].add(data)
        return bool(data)

    def _read_control(self) -> End | None:
        data = received(self.control)
        buffer = self._buffers["control"]
        buffer += data
        while len(buffer) >= 4:
            length = struct.unpack(">I", buffer[:4])[0]
            if len(buffer) < 4 + length:
                break
            message = json.loads(bytes(buffer[4 : 4 + length]))
            del buffer[: 4 + length]
            if message["event"] == "started":
                self.started, self.begun = time.monotonic(), True
                if message["measured"] and self.limited_by == "rlimits":
                    self.limited_by = "measured"
            elif message["event"] == "unwritable":
                self.unwritable = message["error"]
                return "broken"
            elif message["event"] == "failed":
                self.failure = message["error"]
                return "broken"
            elif message["event"] == "ended":
                self.report = message
                return "ended"
        return None if data else "broken"

    def _read_channel(self) -> bool:
        """Read a message of a session's process: believed only as far as it concerns itself."""
        data = received(self.channel)
        *lines, rest = (self._buffers["channel"] + data).split(b"\n")
        # No message of a session is that long: the code has written to its channel.
        self._buffers["channel"] = rest if len(rest) <= _LONGEST_LINE else bytearray()
        for line in lines:
            try:
                said = json.loads(line)
                if said["token"] == self.token:
                    self.cell_error = str(said["error"])[:200]
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        return bool(data)


def received(connection: socket.socket) -> bytes:
    """Read once; nothing when the other end is gone."""
    try:
        return connection.recv(_LARGEST_READ)
    except OSError:
        return b""


def _connections() -> tuple[list[int], list[int]]:
    """The host's and the sandbox's ends of stdout, stderr, control and channel."""
    made: list[int] = []
    try:
        for _ in range(2):
            made += os.pipe()
        for _ in range(2):
            made += (one.detach() for one in socket.socketpair())
    except OSError as error:
        for one in made:
            os.close(one)
        raise InfrastructureError(
            f"sandbox: {error.strerror}: each that is open takes 4 descriptors (see `ulimit -n`)"
        ) from None
    # A pipe is (reading end, writing end), and the host reads; ends of a socket are alike.
    return made[::2], made[1::2]
