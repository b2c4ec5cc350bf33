"""Isolation by bubblewrap (`bwrap`), the tool that Flatpak uses. Standard library only; runs in the
launcher.

The code sees a root folder built from nothing: the system and the interpreter read-only, a /proc of
its own processes, five harmless devices, and file systems in memory, of limited size, at /work,
/tmp and /dev/shm. It has no network but its own loopback and no capability, and what else it may
not call is filtered (`seccomp.py`). Its supervisor is process 1 of the namespace: no signal from
inside ends it, and the kernel ends all with it. Needs Linux 5.14 (limits of processes by user
namespace) and, but for root, the right to make user namespaces. Started by root, there is none: the
supervisor is root with a few rights, and the code has a user of its own, since of root's processes
the kernel counts none. The kernel is shared: a defect of it in a call that is not filtered breaks
this.
"""

import functools
import marshal
import os
import pathlib

from turnwise_sandbox import processes, protocol, seccomp, shipped

SCRATCH = ("/work", "/tmp", "/dev/shm")
_DEVICES = {
    "null": "null",
    "zero": "full",
    "full": "full",
    "random": "random",
    "urandom": "urandom",
}
"""Names, and the machine's devices behind them. What maps /dev/zero shares memory that no limit
counts; /dev/full reads the same zeros, and cannot be mapped. Writing to either fails."""
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_ROOTS = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID")
"""Capabilities of the supervisor, to be above the code's user."""
_BOOT = (
    shipped.LOADER
    + """
import marshal
with open(int(sys.argv[1]), "rb") as file:
    modules, spec, descriptors = marshal.loads(file.read())
load(modules)
sys.modules["turnwise_sandbox.supervisor"].main_in_bubblewrap(spec, descriptors)
"""
)


def start(spec: protocol.Message, descriptors: list[int]) -> int:
    """Start bwrap with a supervisor in it; returns its pid. The reason why bwrap does not start is
    on the code's stderr."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(descriptors[1], 2)  # for what bwrap itself says
            # A file in memory, since the length of arguments is limited, and /proc shows them.
            *theirs, rules, given = processes.keep_only(
                [*descriptors, _pipe(seccomp.filter_program()), os.memfd_create("given")]
            )
            spec["scratch"] = SCRATCH
            with open(given, "wb", closefd=False) as file:
                file.write(marshal.dumps((_modules(), spec, theirs)))
            os.lseek(given, 0, os.SEEK_SET)
            python = [spec["interpreter"], *spec["flags"], "-c", _BOOT, str(given)]
            os.execv(spec["bwrap"], [*_arguments(spec, rules), "--", *python])
        finally:
            os._exit(1)  # nothing of the launcher goes on here
    return child


def prepare() -> None:
    """Make what all sandboxes have in common."""
    _modules()
    seccomp.filter_program()


@functools.cache
def _modules() -> list[tuple[str, object]]:
    return [(name, shipped.compiled(name)) for name in shipped.NAMES]


def _pipe(content: bytes) -> int:
    end, begin = os.pipe()
    # No reader is needed: a pipe holds far more than a filter program.
    os.write(begin, content)
    os.close(begin)
    return end


def _arguments(spec: protocol.Message, rules: int) -> list[str]:
    arguments = [spec["bwrap"], "--die-with-parent", "--new-session", "--as-pid-1"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if "user" in spec:
        for capability in _ROOTS:
            arguments += ["--cap-add", f"CAP_{capability}"]
    else:
        arguments += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    arguments += ["--seccomp", str(rules), "--size", "65536", "--tmpfs", "/dev"]
    for place in SCRATCH:
        arguments += ["--size", str(spec["limits"]["disk"]), "--tmpfs", place]
    for folder in _parents(spec["read_only"]):
        arguments += ["--dir", folder]  # bwrap itself makes those that are missing private
    for path in spec["read_only"]:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += ["--ro-bind", path, path]
    arguments += ["--proc", "/proc"]
    for name, source in _DEVICES.items():
        arguments += ["--dev-bind", f"/dev/{source}", f"/dev/{name}"]
    for place, target in _LINKS.items():
        arguments += ["--symlink", target, place]
    # bwrap goes by the order: after this nothing can be added to either.
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]


def _parents(paths: list[str]) -> list[str]:
    above = {str(parent) for path in paths for parent in pathlib.PurePosixPath(path).parents}
    return sorted(above - {"/", *paths})
