"""The first process in a container: between Docker's two streams and a supervisor's four.

Standard library only. It is the container's root, with the few rights that put it above the code,
whose user is another: no signal of the code reaches it, nor the supervisor, its child. When the
host closes its end, this process ends, and the kernel ends the container. What goes each way are
frames: a stream's number, a length, bytes; a program's output goes before the word that it has
ended.
"""

import os
import select
import socket
import struct
import threading
from typing import NoReturn

from turnwise.prctl import DUMPABLE, PDEATHSIG, SUBREAPER, prctl
from turnwise_sandbox import protocol, supervisor

STDOUT, STDERR, CONTROL, CHANNEL = range(4)
HEADER = struct.Struct(">BI")
LARGEST = 1 << 16
_IN_A_PIPE = 4
"""Readings of `LARGEST` that surely empty a pipe that has no writer any more."""
_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Files that count kills for lack of memory, of control groups of version 2 and of version 1."""


def main(spec: protocol.Message) -> NoReturn:
    """Relay until the supervisor has ended."""
    for place in spec["scratch"]:
        os.chmod(place, 0o1777)  # some engines give it the mode of the folder below instead
    out, out_end = os.pipe()
    error, error_end = os.pipe()
    control, control_end = socket.socketpair()
    channel, channel_end = socket.socketpair()
    theirs = [out_end, error_end, control_end.fileno(), channel_end.fileno()]
    child = os.fork()
    if child == 0:
        for one in (out, error, control.fileno(), channel.fileno()):
            os.close(one)
        prctl(PDEATHSIG, 9)  # with the first process, as the container
        prctl(SUBREAPER, 1)  # orphans of the code come back to it
        prctl(DUMPABLE, 0)  # the code cannot look into its memory
        theirs += [os.open(path, os.O_RDONLY) for path in _EVENTS if os.path.exists(path)]
        supervisor.main(spec, theirs)
    for one in theirs:
        os.close(one)
    control_end.detach()
    channel_end.detach()
    sockets = {CONTROL: control, CHANNEL: channel}
    threading.Thread(target=_down, args=(sockets,), daemon=True).start()
    _up({STDOUT: out, STDERR: error, CHANNEL: channel.fileno(), CONTROL: control.fileno()})
    os._exit(0)


def _down(sockets: dict[int, socket.socket]) -> None:
    """Pass bytes from the host to the supervisor; with the host's end, everything ends."""
    try:
        while header := protocol.exactly(0, HEADER.size):
            stream, length = HEADER.unpack(header)
            data = protocol.exactly(0, length)
            try:
                sockets[stream].sendall(data)
            except OSError:
                continue  # it has ended: the report says how
    finally:
        os._exit(1)


def _up(streams: dict[int, int]) -> None:
    """Pass bytes from the supervisor and the code to the host, until the supervisor is gone."""
    poller = select.poll()
    numbers = {descriptor: stream for stream, descriptor in streams.items()}
    for descriptor in numbers:
        # Sockets are written by the other thread too, which has to wait.
        os.set_blocking(descriptor, numbers[descriptor] in (CONTROL, CHANNEL))
        poller.register(descriptor, select.POLLIN)
    while CONTROL in numbers.values():
        ready = {descriptor for descriptor, _ in poller.poll()}
        # Read before the output and passed on after it: what was written before a message, the word
        # that the program has ended above all, is in the pipes when the message is read.
        outputs = [one for one in numbers if numbers[one] in (STDOUT, STDERR)]
        said = [(one, _read(one)) for one in numbers if one in ready and one not in outputs]
        for descriptor in outputs:
            for _ in range(_IN_A_PIPE):
                data = _read(descriptor)
                if data:
                    send(1, numbers[descriptor], data)
                    continue
                if data == b"":
                    poller.unregister(descriptor)
                    del numbers[descriptor]
                break
        for descriptor, data in said:
            if data:
                send(1, numbers[descriptor], data)
            elif data == b"":
                poller.unregister(descriptor)
                del numbers[descriptor]


def _read(descriptor: int) -> bytes | None:
    """Read what is there; nothing at its end, None if there is nothing now."""
    try:
        return os.read(descriptor, LARGEST)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


def send(descriptor: int, stream: int, data: bytes) -> None:
    protocol.write(descriptor, HEADER.pack(stream, len(data)) + data)
