"""The process that starts sandboxes: small, with one thread, and outside of the isolation.

Standard library only. From a process of turnwise, with gigabytes and many threads, one cannot fork
quickly nor safely; this one forks a sandbox in milliseconds. It reads requests from the host on one
socket, with the descriptors of each sandbox, and says when all its processes are gone. When the
host ends, however it ends, it kills all sandboxes.
"""

import gc
import json
import os
import select
import signal
import socket
import sys

from turnwise.prctl import SUBREAPER, prctl
from turnwise_sandbox import bubblewrap, processes, protocol, unisolated

TIERS = {"bubblewrap": bubblewrap, "unisolated": unisolated}
LARGEST_REQUEST = 1 << 18
FIRST_USER, USERS = 65000, 500
"""Users of the code that root starts, in turn: their processes are counted by user."""


class Launcher:
    """Sandboxes by number, and the processes of each."""

    def __init__(self, host: socket.socket) -> None:
        self.host = host
        self.processes: dict[int, int] = {}
        """The first process of each, or the one that clears its folder away."""
        self.specs: dict[int, protocol.Message] = {}
        self.statuses: dict[int, int] = {}
        self.clearing: set[int] = set()

    def serve(self) -> None:
        """Work until the host is gone."""
        wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        # The end of a child wakes the poll; without a handler Python would not write to the pipe.
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poller = select.poll()
        poller.register(self.host, select.POLLIN)
        poller.register(wake, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if wake in ready:
                os.read(wake, 4096)
                self.reap()
            if self.host.fileno() in ready and not self.request():
                break
        for number in list(self.processes):
            self.kill(number)
        while self.processes:
            self.reap(os.waitpid(-1, 0))

    def request(self) -> bool:
        """Answer one request; False when the host is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.host, LARGEST_REQUEST, 4)
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            return False
        message = json.loads(data)
        number = message["id"]
        if message["op"] == "kill":
            self.kill(number)
            return True
        try:
            self.start(number, message["spec"], descriptors)
        except OSError as error:
            self.say({"id": number, "failed": str(error)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def start(self, number: int, spec: protocol.Message, descriptors: list[int]) -> None:
        if os.geteuid() == 0:
            # By the pid, so that launchers beside each other seldom begin at the same user.
            spec["user"] = FIRST_USER + (os.getpid() + number) % USERS
        if spec["tier"] == "unisolated":
            unisolated.prepare(spec)
        self.processes[number] = TIERS[spec["tier"]].start(spec, descriptors)
        self.specs[number] = spec

    def kill(self, number: int) -> None:
        """Kill the process that holds a sandbox, and so all of it; one that only clears a folder
        away ends by itself."""
        if number in self.processes and number not in self.clearing:
            os.kill(self.processes[number], signal.SIGKILL)

    def reap(self, ended: tuple[int, int] | None = None) -> None:
        """Take note of processes that have ended, and say which sandboxes are gone."""
        while True:
            if ended is None:
                try:
                    ended = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if ended[0] == 0:
                    return
            for number in [one for one, pid in self.processes.items() if pid == ended[0]]:
                del self.processes[number]
                self.statuses.setdefault(number, ended[1])
                self.gone(number)
            ended = None

    def gone(self, number: int) -> None:
        """All of a sandbox's own processes have ended."""
        spec = self.specs[number]
        plain = spec["tier"] == "unisolated"
        if number not in self.clearing and (plain or os.WIFSIGNALED(self.statuses[number])):
            # What the code has left that killed its supervisor, or bwrap that was killed early.
            processes.kill_descendants(set(self.processes.values()))
            if plain and not unisolated.clean(spec, unisolated.AT_ONCE):
                self.clearing.add(number)
                self.processes[number] = unisolated.start_cleaning(spec)
                return
        self.clearing.discard(number)
        del self.specs[number]
        self.say({"id": number, "gone": self.statuses.pop(number)})

    def say(self, message: protocol.Message) -> None:
        try:
            self.host.send(json.dumps(message).encode())
        except ConnectionError:
            return


def main() -> None:
    """Serve the host whose socket is descriptor `sys.argv[1]`."""
    prctl(SUBREAPER, 1)
    host = socket.socket(fileno=int(sys.argv[1]))
    bubblewrap.prepare()  # once, for all that are forked from here
    # So that the collector of a fork does not write to, and so copy, what all share.
    gc.collect()
    gc.freeze()
    version = ".".join(map(str, sys.version_info[:3]))
    host.send(json.dumps({"id": 0, "version": version}).encode())
    Launcher(host).serve()
