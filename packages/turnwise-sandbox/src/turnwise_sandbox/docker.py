"""Sandboxes in Docker's containers, through Docker's command line.

One container for each sandbox, without network and capabilities for the code, the image read-only,
memory and processes limited by Docker. In it runs the supervisor of the other tiers, whose modules
are sent over stdin: the image needs Python 3.11 and nothing of turnwise, and the engine may be on
another machine. Not stronger than the tiers of this machine: containers share the kernel, and who
may talk to Docker's engine is root of its machine.
"""

import contextlib
import itertools
import os
import re
import secrets
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from turnwise.errors import ConfigError
from turnwise.sandbox.settings import MEBIBYTE, SandboxSettings
from turnwise_sandbox import container, protocol, shipped
from turnwise_sandbox.bubblewrap import SCRATCH
from turnwise_sandbox.launch import FLAGS, START_SECONDS, Ticket, environment
from turnwise_sandbox.worker import received

END_SECONDS = 1.0
"""Time for a container to end by itself before it is killed."""
OWN_MEMORY = 48 * MEBIBYTE
"""Memory of the first process and the supervisor, beside the code's limit."""
NOBODY = 65534
"""The code's user."""
_CAPABILITIES = ("DAC_OVERRIDE", "KILL", "SETGID", "SETUID")
"""Capabilities of the supervisor, to be above the code's user. The code has none."""
_OWN_PROCESSES = 3
"""The first process, its thread (Docker counts both), and the supervisor."""
_BOOT = (
    shipped.LOADER
    + """
import json
def exactly(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            os._exit(1)
        data += part
    return data
given = json.loads(exactly(int.from_bytes(exactly(4), "big")))
os.environ.clear()
os.environ.update(given["environment"])
load(given["modules"])
sys.modules["turnwise_sandbox.container"].main(given["spec"])
"""
)


class DockerLaunch:
    """The starter of kind docker (see `Starter`)."""

    limited_by: str = "docker"
    interpreter = "/usr/local/bin/python3"
    """Path of Python in Docker's own images; used for the PATH."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Look for Docker and the image. Raises ConfigError without them."""
        self.settings = settings
        self.command = shutil.which(settings.docker) or ""
        if not self.command:
            raise ConfigError(f"sandbox kind docker: there is no {settings.docker!r} on the PATH")
        self.runtime = f"image {settings.image} {self._image()}"
        self.ended = False
        self._numbers = itertools.count(1)
        self._name = f"turnwise-{os.getpid()}-{secrets.token_hex(4)}"
        self._running: dict[int, _Container] = {}
        self._lock = threading.Lock()

    def start(self, spec: protocol.Message, descriptors: Sequence[int]) -> Ticket:
        ticket = Ticket(next(self._numbers))
        name = f"{self._name}-{ticket.number}"
        if self.ended:
            ticket.failure = "it was closed"
            ticket.over.set()
            return ticket
        command = [self.command, *arguments(spec["limits"], name, self.settings.image)]
        try:
            made = _Container(name, command, ticket, descriptors)
        except OSError as error:
            ticket.failure = f"{self.command}: {error.strerror}"
            ticket.over.set()
            return ticket
        with self._lock:
            self._running[ticket.number] = made
        threading.Thread(target=self._relay, args=(made, spec), daemon=True).start()
        return ticket

    def kill(self, ticket: Ticket) -> None:
        """It ends as soon as the host's end is closed, and is killed if it does not."""
        with self._lock:
            made = self._running.get(ticket.number)
            if made is None or made.dying:
                return
            made.dying = True
        threading.Thread(target=self._end, args=(made,), daemon=True).start()

    def close(self) -> None:
        self.ended = True
        with self._lock:
            running = list(self._running.values())
        for made in running:
            self.kill(made.ticket)
        for made in running:
            made.ticket.over.wait(START_SECONDS)

    def _end(self, made: "_Container") -> None:
        if made.ticket.over.wait(END_SECONDS):
            return
        self._ask("rm", "--force", made.name)
        if not made.ticket.over.wait(END_SECONDS):
            made.process.kill()  # its command line; the engine may be gone

    def _relay(self, made: "_Container", spec: protocol.Message) -> None:
        """Carry all that goes in and comes out, until the container is gone."""
        downward = threading.Thread(target=made.carry_down, args=(spec,), daemon=True)
        downward.start()
        made.carry_up()
        status = made.process.wait()
        made.error.seek(0)
        said = made.error.read().decode(errors="replace").strip()
        made.ticket.failure = said[-300:] or f"docker ended with status {status}"
        with self._lock:
            del self._running[made.ticket.number]
        made.ticket.over.set()
        made.hang_up()
        # Before `close`: the thread uses the sockets, whose numbers may be given again.
        downward.join()
        made.close()

    def _image(self) -> str:
        name = self.settings.image
        done = self._ask("image", "inspect", "--format", "{{.Id}}", name)
        if done.returncode == 0:
            return done.stdout.decode().strip()
        said = done.stderr.decode(errors="replace").strip()[-200:]
        missing = re.search("no such image|image not known", said, re.IGNORECASE)
        advice = f" (the image: `{self.settings.docker} pull {name}`)" if missing else ""
        raise ConfigError(f"sandbox kind docker: {said}{advice}")

    def _ask(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = [self.command, *words]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_SECONDS
            )
        except subprocess.TimeoutExpired:
            late = f"{self.command} {words[0]}: no answer in {START_SECONDS:g} s".encode()
            return subprocess.CompletedProcess(command, 1, b"", late)


class _Container:
    """One container, and what leads to its `Worker`."""

    def __init__(
        self, name: str, command: list[str], ticket: Ticket, theirs: Sequence[int]
    ) -> None:
        self.name, self.ticket, self.dying = name, ticket, False
        self.error = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.error,
            start_new_session=True,
        )
        self.outputs = [os.dup(one) for one in theirs[:2]]  # the caller closes its own
        self.sockets = [socket.socket(fileno=os.dup(one)) for one in theirs[2:]]

    def carry_down(self, spec: protocol.Message) -> None:
        """Pass on the worker's messages; when it closes, so does the container's stdin."""
        assert self.process.stdin is not None
        target = self.process.stdin.fileno()
        try:
            protocol.write(target, _first_message(spec))
            self._pass_on(target)
        except BrokenPipeError:
            return  # the container is gone
        finally:
            self.process.stdin.close()

    def _pass_on(self, target: int) -> None:
        selector = selectors.DefaultSelector()
        for stream, one in zip((container.CONTROL, container.CHANNEL), self.sockets, strict=True):
            selector.register(one, selectors.EVENT_READ, stream)
        with selector:
            while True:
                for key, _ in selector.select():
                    data = received(self.sockets[key.data - container.CONTROL])
                    if data:
                        container.send(target, key.data, data)
                    elif key.data == container.CONTROL:
                        return
                    else:
                        selector.unregister(key.fileobj)

    def carry_up(self) -> None:
        assert self.process.stdout is not None
        source = self.process.stdout.fileno()
        targets = [*self.outputs, *(one.fileno() for one in self.sockets)]
        while header := protocol.exactly(source, container.HEADER.size):
            stream, length = container.HEADER.unpack(header)
            data = protocol.exactly(source, length)
            try:
                protocol.write(targets[stream], data)
            except OSError:
                continue  # the worker does not listen any more

    def hang_up(self) -> None:
        """Let the worker see that nothing more comes, and `carry_down` that it is over."""
        for descriptor in self.outputs:
            os.close(descriptor)
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the rest, when nothing uses it any more."""
        assert self.process.stdout is not None
        for one in self.sockets:
            one.close()
        self.process.stdout.close()
        self.error.close()


def arguments(limits: protocol.Message, name: str, image: str) -> list[str]:
    # Files in memory count as memory. The same number for memory with swap means no swap.
    memory = str(limits["memory"] + limits["disk"] + OWN_MEMORY)
    sized = f"rw,exec,nosuid,nodev,size={limits['disk']}"
    words = ["run", "--rm", "--interactive", "--pull", "never", "--name", name]
    # Docker's own log would write all that the code prints to the engine's disk.
    words += ["--network", "none", "--hostname", "sandbox", "--read-only", "--log-driver", "none"]
    words += ["--user", "0:0", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    for capability in _CAPABILITIES:
        words += ["--cap-add", capability]
    words += ["--memory", memory, "--memory-swap", memory, "--shm-size", str(limits["disk"])]
    words += ["--pids-limit", str(limits["processes"] + _OWN_PROCESSES)]
    words += ["--workdir", "/work", "--tmpfs", f"/work:{sized}", "--tmpfs", f"/tmp:{sized}"]
    for variable, value in environment(DockerLaunch.interpreter).items():
        words += ["--env", f"{variable}={value}"]
    return [*words, "--entrypoint", "python3", image, *FLAGS, "-c", _BOOT]


def _first_message(spec: protocol.Message) -> bytes:
    mine = {"tier": "docker", "limits": spec["limits"], "work": "/work", "scratch": SCRATCH}
    return protocol.encode(
        {
            "modules": [
                [name, shipped.text(name)]
                for name in (*shipped.NAMES, "turnwise_sandbox.container")
            ],
            "environment": environment(DockerLaunch.interpreter),
            "spec": mine | {"user": NOBODY},
        }
    )
