"""Isolation by Linux namespaces of its own making: user, process, mount, network, IPC, host name.

Standard library only; runs in the launcher. The code sees a root folder built from nothing: the
system and the interpreter read-only, a /proc of its own processes, five harmless devices, and one
file system in memory, of limited size, for /work, /tmp and /dev/shm. It has no network interface
but its own loopback, no capability, and a user (65534) that owns nothing. Needs Linux 5.14 (limits
of processes by user namespace) and the right to make user namespaces; as root of the machine it
needs no setting at all.

The supervisor is process 1 of one process namespace, so that the kernel ends all with it; the code
is in another one below, whose process 1 only takes note of orphans' ends.

What it is not: a virtual machine. The kernel is shared, and a defect of the kernel in a system call
that `seccomp` does not deny breaks it.
"""

import contextlib
import os
import signal
import socket
import stat
from typing import NoReturn

from turnwise.sandbox import kernel, protocol, supervisor

NOBODY = 65534
_FLAGS = (
    kernel.NEWUSER
    | kernel.NEWPID
    | kernel.NEWNS
    | kernel.NEWNET
    | kernel.NEWIPC
    | kernel.NEWUTS
    | kernel.NEWCGROUP
)
DEVICES = {"null": "null", "zero": "full", "full": "full", "random": "random", "urandom": "urandom"}
"""Names, and the machine's devices behind them. What maps /dev/zero shares memory that no limit
counts; /dev/full reads the same zeros, and cannot be mapped. Writing to either fails."""
LINKS = {
    "dev/fd": "/proc/self/fd",
    "dev/stdin": "/proc/self/fd/0",
    "dev/stdout": "/proc/self/fd/1",
    "dev/stderr": "/proc/self/fd/2",
}
PASSWD = "nobody:x:65534:65534:nobody:/work:/bin/sh\n"
GROUP = "nogroup:x:65534:\n"


def start(spec: protocol.Message, descriptors: list[int]) -> list[int]:
    """Start a supervisor in new namespaces; returns its pid. Raises OSError where it cannot be."""
    mapped, say_mapped = os.pipe()
    child = kernel.clone(_FLAGS)
    if child == 0:
        try:
            os.close(say_mapped)
            if os.read(mapped, 1) != b"!":
                os._exit(1)
            descriptors = keep_only(descriptors)
            _isolate(spec)
        except BaseException as error:  # noqa: BLE001 - told to the host
            say_failed(descriptors[2], error)
        supervisor.main(spec, descriptors)
    os.close(mapped)
    try:
        as_root = "0 0 1\n65534 65534 1\n"
        map_users(child, as_root if os.geteuid() == 0 else f"{NOBODY} {{}} 1\n")
        os.write(say_mapped, b"!")
    finally:
        os.close(say_mapped)
    return [child]


def map_users(process: int, mapping: str) -> None:
    """Say which users and groups a process in a new user namespace can be; `{}` is the own one."""
    if os.geteuid() != 0:
        _write(f"/proc/{process}/setgroups", "deny")
    _write(f"/proc/{process}/uid_map", mapping.format(os.geteuid()))
    _write(f"/proc/{process}/gid_map", mapping.format(os.getegid()))


def say_failed(control: int, error: BaseException) -> NoReturn:
    """Send the host the reason why the supervisor is missing, over the control connection, and end
    this process."""
    with contextlib.suppress(ConnectionError):  # the host no longer wants it
        message = protocol.encode({"event": "failed", "error": str(error)})
        socket.socket(fileno=control).sendall(message)
    os._exit(1)


def keep_only(descriptors: list[int]) -> list[int]:
    """Close every descriptor but the standard ones and these; returns their new numbers."""
    high = [os.dup2(one, 64 + position) for position, one in enumerate(descriptors)]
    os.closerange(3, 64)
    os.closerange(64 + len(high), 1 << 16)
    return high


def _isolate(spec: protocol.Message) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    kernel.raise_loopback()
    kernel.mount("", "/", kernel.MS_REC | kernel.MS_PRIVATE)
    trees = {path: kernel.open_tree(path) for path in spec["read_only"] if not os.path.islink(path)}
    devices = {name: kernel.open_tree(f"/dev/{source}") for name, source in DEVICES.items()}
    safe = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", "/tmp", safe, "size=1m,mode=755")
    os.chdir("/tmp")
    _make_etc()
    _make_devices(devices)
    make_scratch(spec["limits"])
    for path in spec["read_only"]:
        show_read_only(path, trees.get(path))
    os.mkdir("proc")
    begin_processes(spec, "proc")
    kernel.pivot_to("/tmp")
    kernel.set_mount_attributes("/", kernel.ATTRIBUTE_READ_ONLY, recursive=False)
    socket.sethostname("sandbox")
    become_nobody()


def begin_processes(spec: protocol.Message, place: str) -> None:
    """Make a process namespace for this process's later children, with its first process and, at
    `place`, its /proc. This process itself has no number in it."""
    kernel.unshare(kernel.NEWPID)
    answer, answer_end = os.pipe()
    init = os.fork()
    if init == 0:
        try:
            safe = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
            kernel.mount("proc", place, safe, "subset=pid")
            become_nobody()
            os.write(answer_end, b"!")
            _take_note_of_ends()
        except BaseException as error:  # noqa: BLE001 - told to the supervisor, which tells the host
            os.write(answer_end, str(error).encode())
        finally:
            os._exit(1)
    os.close(answer_end)
    said = os.read(answer, 4096)
    os.close(answer)
    if said != b"!":
        raise OSError(f"no process namespace: {said.decode(errors='replace')}")
    spec["init"] = init


def _take_note_of_ends() -> NoReturn:
    """Do what process 1 has to do, and nothing else. Whoever ends it ends the whole namespace."""
    os.closerange(0, 1 << 16)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigwait([signal.SIGCHLD])


def become_nobody() -> None:
    """Take the user that owns nothing, without any capability, and out of reach of its others."""
    kernel.drop_bounding_set()
    if os.getuid() != NOBODY:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)  # a change of user takes it away


def show_read_only(path: str, tree: int | None) -> None:
    """Attach the tree of a path, or its link if it is one, below the working directory."""
    place = path.lstrip("/")
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    if tree is None:
        os.symlink(os.readlink(path), place)
        return
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        os.makedirs(place, exist_ok=True)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    attributes = kernel.ATTRIBUTE_READ_ONLY | kernel.ATTRIBUTE_NOSUID | kernel.ATTRIBUTE_NODEV
    kernel.set_mount_attributes(tree, attributes, recursive=True)
    kernel.attach(tree, place)
    os.close(tree)


def _make_etc() -> None:
    os.makedirs("etc", exist_ok=True)
    _write("etc/passwd", PASSWD)
    _write("etc/group", GROUP)


def _make_devices(devices: dict[str, int]) -> None:
    os.mkdir("dev")
    for name, tree in devices.items():
        os.close(os.open(f"dev/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.attach(tree, f"dev/{name}")
        os.close(tree)
    for name, target in LINKS.items():
        os.symlink(target, name)


def make_scratch(limits: protocol.Message) -> None:
    """Mount one file system in memory for all that may be written, so that one size limits it: at
    work, tmp and dev/shm below the working directory."""
    for place in ("work", "tmp", "dev/shm"):
        os.makedirs(place, exist_ok=True)
    options = f"size={limits['disk']},nr_inodes={limits['files']},mode=755"
    kernel.mount("tmpfs", "work", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for name in ("work", "tmp", "shm"):
        os.mkdir(f"work/{name}")
        os.chown(f"work/{name}", NOBODY, NOBODY)
    trees = {name: kernel.open_tree(f"work/{name}") for name in ("tmp", "shm", "work")}
    kernel.detach("work")
    for name, place in (("tmp", "tmp"), ("shm", "dev/shm"), ("work", "work")):
        kernel.attach(trees[name], place)
        os.close(trees[name])


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
