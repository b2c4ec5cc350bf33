"""The first process of a sandbox: it starts the code, watches it, kills what is left, and reports.

Standard library only. It is forked inside the isolation, waits for
one job, and ends with it. Where there is a process namespace it is its process 1: no signal from
inside reaches it, and nothing outlives it. It holds the control connection, which the code does
not have, so that exit status, use and files are its own observation and not what the code says.

Not here: the deadline and the limit of output, which the host keeps; isolation, which is set up
before (namespaces.py, bubblewrap.py, rlimits.py).
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Collection
from typing import NamedTuple, NoReturn

from turnwise.sandbox import artefacts, cgroups, kernel, seccomp, snippets, wire

LOOK_EVERY = 0.05
"""Seconds between two looks at the memory and processor time of all processes."""
KILL_SECONDS = 2.0
STACK = 8 << 20
"""Bytes of the stack of each thread, the same on every machine."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_CHANNEL, _FAULT, _JOB = 3, 4, 5


def guard(
    spec: wire.Message,
    stdout: int,
    stderr: int,
    control: int,
    channel: int,
    events: int | None = None,
    members: int | None = None,
) -> None:
    """Do the one job of this sandbox. Returns when the host has the report, or is gone.

    All but `spec` are descriptors; the last two, of a control group, tell what was killed for lack
    of memory, and take the code in (see cgroups.py).
    """
    connection = socket.socket(fileno=control)
    try:
        waiting = _prepare(spec, stdout, stderr, channel)
        if members is not None:
            os.write(members, str(waiting.pid).encode())
        for descriptor in (stdout, stderr, channel):
            os.close(descriptor)
        connection.sendall(wire.encode({"event": "ready"}))
        job = wire.receive(connection)
        if job is None or job["op"] != "start":
            return
        _hand_over(spec, job, waiting)
    except (OSError, ValueError) as error:
        connection.sendall(wire.encode({"event": "failed", "error": str(error)}))
        return
    connection.sendall(wire.encode({"event": "started"}))
    report = _watch(spec["limits"], waiting.pid, connection)
    if report is not None:
        if events is not None and cgroups.kills(events):
            report["why"] = report["why"] or "out_of_memory"
        report |= _gathered(spec, report.pop("collect") or job["collect"])
        connection.sendall(wire.encode(report))


class _Waiting(NamedTuple):
    """A process under all limits, which waits to become the code: made before the job is known, so
    that the job does not wait for it."""

    pid: int
    stdin: int
    job: int
    fault: int


def _prepare(spec: wire.Message, stdout: int, stderr: int, channel: int) -> _Waiting:
    stdin = os.memfd_create("stdin")
    job_end, job = os.pipe()
    fault, fault_end = os.pipe()
    processes = _most_processes(spec)
    child = os.fork()
    if child == 0:
        os.close(fault)
        os.close(job)
        _become(spec, processes, (stdin, stdout, stderr, channel, fault_end, job_end))
    os.close(fault_end)
    os.close(job_end)
    return _Waiting(child, stdin, job, fault)


def _hand_over(spec: wire.Message, job: wire.Message, waiting: _Waiting) -> None:
    """Write the files and let the code begin; OSError if that which waits for it has failed."""
    user = spec.get("user")
    if user is not None:
        os.seteuid(user)  # the files are to be the code's own
    artefacts.write_files(spec["work"], wire.unpack_files(job["files"]))
    if user is not None:
        os.seteuid(0)
    os.write(waiting.stdin, wire.unpack_files(job["stdin"])[""])
    os.lseek(waiting.stdin, 0, os.SEEK_SET)  # the position is the child's as well
    os.close(waiting.stdin)
    wanted = {name: job[name] for name in ("source", "command", "session", "environment")}
    with contextlib.suppress(BrokenPipeError), open(waiting.job, "wb") as file:
        file.write(json.dumps(wanted).encode())
    said = _read_all(waiting.fault)
    os.close(waiting.fault)
    if said != b"!":
        raise OSError(f"the code could not be started: {said.decode(errors='replace')}")


def _most_processes(spec: wire.Message) -> int:
    """The limit of the code's user, with those processes of it that are not the code's."""
    most: int = spec["limits"]["processes"]
    if spec["tier"] == "docker":
        # The user is that of all containers, and Docker limits each of them.
        return resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if spec["tier"] != "rlimits":
        # This one, and what bwrap leaves there: users are counted by user namespace.
        return most + 1 + int(spec.get("beside", 0))
    if spec.get("user") is not None:
        return most
    mine, count = os.getuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == mine:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # it has ended
    return most + count


def _become(spec: wire.Message, processes: int, descriptors: tuple[int, ...]) -> NoReturn:
    """In the child: take on the limits, wait for the job, and become the code."""
    fault = descriptors[4]
    try:
        os.setsid()
        _arrange(descriptors)
        fault = _FAULT
        user = spec.get("user")
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        os.chdir(spec["work"])
        os.umask(0o022)
        _limit(spec["limits"], processes)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        _offer_to_the_kernel()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.install_filter(seccomp.filter_program())
        module = snippets.main_module()
        job = json.loads(_read_all(_JOB) or b"null")
        if job is None:
            os._exit(0)  # there will be none
        os.environ.update(job["environment"])
        os.closerange(_JOB, _JOB + 1)
        os.write(fault, b"!")
    except BaseException as error:  # noqa: BLE001 - told to the warden, which raises it
        os.write(fault, str(error).encode())
        os._exit(1)
    status = 127
    try:
        if not job["session"]:
            os.close(_CHANNEL)
        if job["command"]:
            status = _execute(job["command"])
        else:
            os.close(_FAULT)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if job["session"]:
                status = snippets.run_session(module, _CHANNEL)
            else:
                status = snippets.run_once(module, job["source"])
    finally:
        os._exit(status)


def _execute(command: list[str]) -> int:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        os.write(2, f"{command[0]}: {error}\n".encode(errors="replace"))
        return 126 if isinstance(error, PermissionError) else 127


def _arrange(descriptors: tuple[int, ...]) -> None:
    """Leave open 0, 1, 2, the channel, the pipes for faults and for the job, and no other."""
    high = [os.dup2(one, 128 + position) for position, one in enumerate(descriptors)]
    for target, source in enumerate(high):
        os.dup2(source, target, inheritable=target < _CHANNEL)
    os.closerange(_JOB + 1, 1 << 16)


def _limit(limits: wire.Message, processes: int) -> None:
    seconds = max(1, int(-(-limits["cpu_seconds"] // 1)))
    wanted = {
        resource.RLIMIT_AS: (limits["memory"], limits["memory"]),
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_NPROC: (processes, processes),
        resource.RLIMIT_FSIZE: (limits["disk"], limits["disk"]),
        resource.RLIMIT_NOFILE: (limits["open_files"], limits["open_files"]),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_STACK: (STACK, STACK),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
    }
    for name, (soft, hard) in wanted.items():
        most = resource.getrlimit(name)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(name, (soft, hard))


def _offer_to_the_kernel() -> None:
    """Be the first that the kernel kills where the whole machine lacks memory."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _watch(limits: wire.Message, child: int, connection: socket.socket) -> wire.Message | None:
    """Wait for the end of the code, a limit of all its processes, or the host's word; then kill
    what is left. None when the host is gone."""
    start, why, collect = time.monotonic(), "", None
    state = _State(child)
    ended = os.pidfd_open(child)
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    poller.register(ended, select.POLLIN)
    while state.status is None and not why:
        ready = {descriptor for descriptor, _ in poller.poll(LOOK_EVERY * 1000)}
        if connection.fileno() in ready:
            message = wire.receive(connection)
            if message is None:
                _kill_all()
                return None
            why, collect = "stopped", message["collect"]
        elif ended not in ready:
            why = _excess(limits, state)
        state.reap()
    wall = time.monotonic() - start
    left, survivors = _kill_all(state)
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "event": "ended",
        "why": why,
        "collect": collect,
        "status": state.status,
        "seconds": wall,
        "cpu_seconds": use.ru_utime + use.ru_stime,
        "peak_memory": max(use.ru_maxrss * 1024, state.peak),
        "killed": left,
        "survivors": survivors,
    }


class _State:
    """What is known of the code's processes."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None
        self.peak = 0

    def reap(self) -> int:
        """Take the exit status of all that have ended; returns how many they are."""
        count = 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return count
            if pid == 0:
                return count
            count += 1
            if pid == self.child:
                self.status = status


def _excess(limits: wire.Message, state: _State) -> str:
    """Which limit all processes together have gone beyond, if any."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = use.ru_utime + use.ru_stime, 0
    for pid, (_, fields) in _descendants().items():
        cpu += (int(fields[11]) + int(fields[12])) / _TICKS
        memory += _own_memory(pid)
    state.peak = max(state.peak, memory)
    if memory > limits["memory"]:
        return "out_of_memory"
    return "cpu_limit" if cpu > limits["cpu_seconds"] else ""


def _own_memory(pid: int) -> int:
    """Bytes that a process has in memory, without files and what it shares on purpose."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    except (OSError, IndexError):
        return 0  # it has ended


def _descendants(without: Collection[int] = ()) -> dict[int, tuple[int, list[bytes]]]:
    """Parent and fields from the state on of /proc/PID/stat, of all that stem from this process;
    without these processes and what stems from them."""
    seen: dict[int, tuple[int, list[bytes]]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            seen[int(name)] = (int(fields[1]), fields)
        except (OSError, IndexError):
            continue  # it has ended
    me = os.getpid()
    stemming: dict[int, tuple[int, list[bytes]]] = {}
    for pid in seen:
        ancestor, steps = pid, 0
        while ancestor in seen and ancestor != me and ancestor not in without and steps < len(seen):
            ancestor, steps = seen[ancestor][0], steps + 1
        if ancestor == me and pid != me:
            stemming[pid] = seen[pid]
    return stemming


def _kill_all(state: _State | None = None) -> tuple[int, int]:
    """Kill and reap every process but this one; returns how many were left behind by the code, and
    how many could not be killed in time (none, unless the kernel holds them)."""
    state = state or _State(0)
    killed = 0
    until = time.monotonic() + KILL_SECONDS
    while True:
        if os.getpid() == 1:
            _kill_namespace()
        else:
            kill_descendants()
        running = state.status is None and state.child != 0
        killed += state.reap() - (running and state.status is not None)
        if not _has_children():
            return killed, 0
        if time.monotonic() > until:
            return killed, len(_descendants())
        time.sleep(0.0005)


def _kill_namespace() -> None:
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_descendants(without: Collection[int] = ()) -> None:
    """Kill what stems from this process, but for these and what stems from them. All are stopped
    first, so that none can start another while others are killed."""
    for _ in range(20):
        below = _descendants(without).items()
        running = [pid for pid, (_, fields) in below if fields[0] not in b"TZX"]
        if not running:
            break
        for pid in running:
            _signal(pid, signal.SIGSTOP)
    for pid in _descendants(without):
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _gathered(spec: wire.Message, patterns: list[str]) -> wire.Message:
    if not patterns:
        return {"files": {}, "refused": {}}
    limits = spec["limits"]
    taken, refused = artefacts.gather(spec["work"], patterns, limits["disk"], limits["files"])
    return {"files": wire.pack_files(taken), "refused": refused}


def _read_all(descriptor: int) -> bytes:
    said = b""
    while part := os.read(descriptor, 4096):
        said += part
    return said


def main(spec: wire.Message, descriptors: list[int]) -> NoReturn:
    """Guard, then end this process without running what the launcher has left to do."""
    status = 1
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        guard(spec, *descriptors)
        status = 0
    except ConnectionError:
        status = 0  # the host is gone, and nobody waits for a report
    except BaseException:  # noqa: BLE001 - the host sees that there is no report
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)
