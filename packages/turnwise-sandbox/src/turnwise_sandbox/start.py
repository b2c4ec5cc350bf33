"""The start of the code: from a process under all limits that waits, to the code that runs in it.
Standard library only."""

import contextlib
import errno
import json
import os
import resource
import signal

from turnwise.prctl import DUMPABLE, NO_NEW_PRIVS, PDEATHSIG, prctl
from turnwise_sandbox import artefacts, protocol, snippets, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

STACK = 8 << 20
"""Bytes of the stack of each thread, the same on every machine."""
SIGNALS = 256
"""Signals in queues, and timers, which are counted by user: those of the machine's user too."""
_CHANNEL, _FAULT, _JOB = 3, 4, 5
_MACHINES_FAULT = dict.fromkeys(
    ("unisolated", "docker"), (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
)
"""Errors of writing that say nothing of the files where the disk is not the sandbox's own."""


class UnwritableError(Exception):
    """The job's files cannot be written: a name that is too long, too many, or too large."""


class Waiting:
    """A process under all limits, which becomes the code: made before the job is known, which then
    does not wait for it."""

    def __init__(self, pid: int, stdin: int, job: int, fault: int) -> None:
        self.pid, self.stdin, self.job, self.fault = pid, stdin, job, fault


def prepare(spec: protocol.Message, stdout: int, stderr: int, channel: int) -> Waiting:
    stdin = _unnamed_file(spec["work"])
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
    return Waiting(child, stdin, job, fault)


def _unnamed_file(folder: str) -> int:
    """A file without a name, in a folder that no other process writes to yet."""
    path = os.path.join(folder, "stdin")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return descriptor


def hand_over(spec: protocol.Message, job: protocol.Message, waiting: Waiting) -> None:
    """Write the files and let the code begin. Raises OSError if what waits has failed, and
    UnwritableError."""
    user = spec.get("user")
    if user is not None:
        os.seteuid(user)  # the files are to be the code's own
    try:
        artefacts.write_files(spec["work"], protocol.unpack_files(job["files"]))
        if usage.files(spec.get("scratch", ()))[1] > spec["limits"]["files"]:
            raise UnwritableError(f"there may be {spec['limits']['files']} of them")
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _MACHINES_FAULT.get(spec["tier"], ()):
            raise
        raise UnwritableError(str(error)) from error
    finally:
        if user is not None:
            os.seteuid(0)
            prctl(PDEATHSIG, signal.SIGKILL)  # a change of user takes it away
    os.write(waiting.stdin, protocol.unpack_files(job["stdin"])[""])
    os.lseek(waiting.stdin, 0, os.SEEK_SET)  # the position is the child's as well
    os.close(waiting.stdin)
    wanted = {name: job[name] for name in ("source", "command", "session", "environment")}
    with contextlib.suppress(BrokenPipeError), open(waiting.job, "wb") as file:
        file.write(json.dumps(wanted).encode())
    said = _read_all(waiting.fault)
    os.close(waiting.fault)
    if said != b"!":
        raise OSError(f"the code could not be started: {said.decode(errors='replace')}")


def _most_processes(spec: protocol.Message) -> int:
    """The limit of the code's user, with those processes of it that are not the code's."""
    most: int = spec["limits"]["processes"]
    if spec["tier"] == "docker":
        # The user is that of all containers, and Docker limits each of them.
        return resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if spec.get("user") is not None:
        return most
    if spec["tier"] == "bubblewrap":
        return most + 1  # with the supervisor: users are counted by user namespace
    mine, count = os.getuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == mine:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # it has ended
    return most + count


def _become(spec: protocol.Message, processes: int, descriptors: tuple[int, ...]) -> "NoReturn":
    """Take on the limits in the child, wait for the job, and become the code."""
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
        # Else /proc/self, which is written to, is root's: the supervisor is not dumpable.
        prctl(DUMPABLE, 1)
        _offer_to_the_kernel()
        prctl(PDEATHSIG, signal.SIGKILL)  # after a change of user, which takes it away
        prctl(NO_NEW_PRIVS, 1)
        module = snippets.main_module()
        job = json.loads(_read_all(_JOB) or b"null")
        if job is None:
            os._exit(0)  # there will be none
        os.environ.update(job["environment"])
        os.closerange(_JOB, _JOB + 1)
        os.write(fault, b"!")  # it runs now: what fails from here on is the code
    except BaseException as error:  # noqa: BLE001 - told to the supervisor, which raises it
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
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored up to here
            if job["session"]:
                status = snippets.run_session(module, _CHANNEL)
            else:
                status = snippets.run_once(module, job["source"])
    finally:
        os._exit(status)


def _execute(command: list[str]) -> int:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # ignored up to here
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        os.write(2, f"{command[0]}: {error}\n".encode(errors="replace"))
        return 126 if isinstance(error, PermissionError) else 127


def _arrange(descriptors: tuple[int, ...]) -> None:
    """Leave open 0, 1, 2, the channel, the pipes for faults and for the job, and no other."""
    # Above all of them first: a number that one is to get may be another one's still.
    high = [os.dup2(one, 128 + position) for position, one in enumerate(descriptors)]
    for target, source in enumerate(high):
        os.dup2(source, target, inheritable=target < _CHANNEL)
    os.closerange(_JOB + 1, 1 << 16)


def _limit(limits: protocol.Message, processes: int) -> None:
    # Whole seconds, rounded up. SIGXCPU comes first, SIGKILL a second later.
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
        resource.RLIMIT_SIGPENDING: (SIGNALS, SIGNALS),
    }
    for name, (soft, hard) in wanted.items():
        # A limit that is lower already cannot be raised.
        most = resource.getrlimit(name)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(name, (soft, hard))


def _offer_to_the_kernel() -> None:
    """Be the first that the kernel kills where the whole machine lacks memory."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _read_all(descriptor: int) -> bytes:
    said = b""
    while part := os.read(descriptor, 4096):
        said += part
    return said
