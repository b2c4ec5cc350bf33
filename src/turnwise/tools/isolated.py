"""Runs functions of users' own in processes of their own, which are killed at the deadline.

A thread that computes `9 ** 9 ** 8` holds the whole interpreter, and no deadline of the event loop
is looked at before it lets go; a process can be killed. Python's own pools wait for what hangs. Not
here: isolation of code that nobody has read (turnwise-sandbox): a worker has this process's rights.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from turnwise.errors import InfrastructureError, ToolError

START_SECONDS = 120.0
"""Time for a worker to start and to import what it needs; its calls' deadlines are apart."""
MOST_BYTES = 64 << 20
"""The most that one call's answer may have."""
_BOOT = "import sys; from turnwise.tools.isolated import serve; serve(int(sys.argv[1]))"
_LENGTH = struct.Struct(">Q")


class Workers:
    """Processes that have run `prepare(*arguments)` and call functions, one at a time each; as many
    as there are calls at once. They end with this process.

    Example: Workers(load_tools, "tools.py").call(run_tool, "add", {"a": 1}, seconds=2.0)
    """

    def __init__(self, prepare: Callable[..., Any], *arguments: Any) -> None:
        """Both have to be importable by name, for a process that has imported nothing yet."""
        self._begin = (prepare, arguments)
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._idle)  # also when the program ends

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Return what the function returns. Blocks.

        Raises ToolError when it raises one, does not return within `seconds` (it is killed then),
        ends its process, or returns too much; InfrastructureError when it raises anything else, or
        a worker does not start.
        """
        worker = self._idle_one() or _Worker(self._begin)
        try:
            raised, value = worker.ask((function, arguments), seconds)
        except BaseException:
            worker.kill()  # what it still says would be taken for the next call's answer
            raise
        with self._lock:
            self._idle.append(worker)
        if raised is not None:
            raise raised(value)
        return value

    def _idle_one(self) -> "_Worker | None":
        """One that waits for a call; those that ended meanwhile are no call's failure."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None or worker.lives:
                return worker
            worker.kill()


def _end(idle: "list[_Worker]") -> None:
    while idle:
        idle.pop().kill()


class _Worker:
    """One process, and the socket to it."""

    def __init__(self, begin: Any) -> None:
        self._socket, theirs = socket.socketpair()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the run; killed with what it has started
            )
        try:
            raised, value = self.ask(begin, START_SECONDS)
        except ToolError as error:
            self.kill()
            raise InfrastructureError(f"a worker for tools did not start: {error}") from None
        if raised is not None:
            self.kill()
            raise InfrastructureError(f"a worker for tools did not start: {value}")

    def ask(self, what: Any, seconds: float) -> Any:
        until = time.monotonic() + seconds
        try:
            self._send(pickle.dumps((what, seconds)), until)
            (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until))
            if length > MOST_BYTES:
                raise ToolError(f"it gave more than {MOST_BYTES >> 20} MiB")
            return pickle.loads(self._exactly(length, until))
        except TimeoutError:
            raise ToolError(f"it was stopped after {seconds:g} s") from None
        except (OSError, EOFError):
            raise ToolError("it ended its process") from None

    @property
    def lives(self) -> bool:
        asked = os.WEXITED | os.WNOHANG | os.WNOWAIT  # to reap it would free its number
        return os.waitid(os.P_PID, self._process.pid, asked) is None

    def kill(self) -> None:
        """Kill the process, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._socket.close()

    def _send(self, data: bytes, until: float) -> None:
        self._socket.settimeout(max(until - time.monotonic(), 1e-3))  # 0 would not block at all
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def _exactly(self, count: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < count:
            self._socket.settimeout(max(until - time.monotonic(), 1e-3))
            part = self._socket.recv(min(count - len(found), 1 << 20))
            if not part:
                raise EOFError
            found += part
        return bytes(found)


def serve(descriptor: int) -> None:
    """Be a worker, until the socket is closed."""
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rwb") as channel:
        os.set_inheritable(descriptor, False)  # what a call starts would keep it open
        while head := channel.read(_LENGTH.size):
            (function, arguments), seconds = pickle.loads(channel.read(_LENGTH.unpack(head)[0]))
            # For the time when nobody is left to kill it.
            signal.setitimer(signal.ITIMER_REAL, 2 * seconds)
            answer = pickle.dumps(_answer(function, arguments))
            signal.setitimer(signal.ITIMER_REAL, 0)
            channel.write(_LENGTH.pack(len(answer)) + answer)
            channel.flush()


def _answer(function: Callable[..., Any], arguments: Any) -> tuple[Any, Any]:
    """The kind of error that was raised, or None, and its text or what was returned."""
    try:
        return None, function(*arguments)
    except ToolError as error:
        return ToolError, str(error)
    except (SystemExit, MemoryError, RecursionError) as error:  # arguments can bring these about
        return ToolError, type(error).__name__
    except Exception as error:  # noqa: BLE001 - a user's code: named there
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        place = f" ({last.tb_frame.f_code.co_filename}, line {last.tb_lineno})" if last else ""
        return InfrastructureError, f"{type(error).__name__}: {error}{place}"


def run_static(function: Callable[..., Any], values: Mapping[str, Any], seconds: float) -> str:
    """Call a static method of a user's class in a worker. Raises as `Workers.call`."""
    module = sys.modules[function.__module__]
    place = (module.__name__, getattr(module, "__file__", None) or "")
    called = _workers(*place).call(_static, *place, function.__qualname__, values, seconds=seconds)
    return str(called)


@functools.cache
def _workers(name: str, file: str) -> Workers:
    return Workers(_load, name, file)


def _load(name: str, file: str) -> None:
    _module(name, file)


def _static(name: str, file: str, qualified: str, values: Mapping[str, Any]) -> str:
    found: Any = _module(name, file)
    for part in qualified.split("."):
        found = getattr(found, part)
    return str(found(**values))


@functools.cache
def _module(name: str, file: str) -> ModuleType:
    """A module by its name, or by its file where that was imported as one."""
    if name != "__main__" and importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    # Not by the name __main__, under which the program in the file would run.
    spec = importlib.util.spec_from_file_location(name.strip("_"), file)
    assert spec is not None  # it has been imported once
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
