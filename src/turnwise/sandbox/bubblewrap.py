"""Isolation by bubblewrap (`bwrap`), the tool that Flatpak uses: namespaces set up by others' code.

Standard library only; runs in the launcher. The code sees what it sees under `namespaces`, built
by bwrap; the warden is started in it as process 1, in an interpreter of its own, which makes a
start slower. Number of files in memory is not limited, since bwrap has no option for it.

Started by root, bwrap runs in a user namespace in which its root is user 65534 to the rest of the
machine, and the code is 65533: the kernel does not limit the number of processes of root's own.

What it is not: a virtual machine; see `namespaces`.
"""

import json
import os
import pathlib

from turnwise.sandbox import kernel, namespaces, warden, wire

BOOT = (
    "import sys, types, json\n"
    "package = types.ModuleType('turnwise'); package.__path__ = [sys.argv[1]]\n"
    "sys.modules['turnwise'] = package\n"
    "from turnwise.sandbox import bubblewrap\n"
    "bubblewrap.enter(json.loads(sys.argv[2]))\n"
)
"""Loads these modules without the package around them, which needs more than the standard
library."""


_SCRATCH = ("/dev/shm", "/tmp", "/work")
_CAPABILITIES = ("CAP_CHOWN", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP")
"""What the warden needs for a moment to give up more than bwrap does."""


def start(spec: wire.Message, descriptors: list[int]) -> list[int]:
    """Start bwrap with a warden in it; returns the pids of both. Raises OSError where it fails."""
    information, say_information = os.pipe()
    mapped, say_mapped = os.pipe()
    as_root = os.geteuid() == 0
    child = kernel.clone(kernel.NEWUSER) if as_root else os.fork()
    if child == 0:
        os.close(say_mapped)
        if os.read(mapped, 1) != b"!":
            os._exit(1)
        _execute(spec, [*descriptors, say_information], as_root)
    os.close(mapped)
    os.close(say_information)
    try:
        if as_root:  # root's own files belong to user 1 there, so that it can show them
            namespaces.map_users(child, "0 65534 1\n1 0 1\n65534 65533 1\n")
        os.write(say_mapped, b"!")
    finally:
        os.close(say_mapped)
    with open(information) as file:
        said = file.read()
    if not said:
        os.waitpid(child, 0)
        raise OSError("bwrap did not start; its reason is on stderr")
    return [child, json.loads(said)["child-pid"]]


def _execute(spec: wire.Message, descriptors: list[int], as_root: bool) -> None:
    try:
        kept = namespaces.keep_only(descriptors)
        for one in kept:
            os.set_inheritable(one, True)
        if as_root:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        os.execv(spec["bwrap"], _arguments(spec, kept[-1], as_root))
    finally:
        os._exit(1)


def enter(spec: wire.Message) -> None:
    """In bwrap: be the warden."""
    if os.getuid() == 0:
        for place in _SCRATCH:
            os.chown(place, namespaces.NOBODY, namespaces.NOBODY)
    namespaces.become_nobody()
    warden.main(spec, list(range(64, 64 + (6 if spec["cgroup"] else 4))))


def _arguments(spec: wire.Message, information: int, as_root: bool) -> list[str]:
    size = str(spec["limits"]["disk"])
    user = [] if as_root else ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    arguments = [spec["bwrap"], *user, "--die-with-parent", "--new-session", "--as-pid-1"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--cap-drop", "ALL", "--hostname", "sandbox"]
    for capability in _CAPABILITIES if as_root else ():
        arguments += ["--cap-add", capability]
    arguments += ["--info-fd", str(information)]
    arguments += ["--size", "65536", "--tmpfs", "/dev"]
    for place in _SCRATCH:
        arguments += ["--size", size, "--tmpfs", place]
    for folder in _parents([*spec["read_only"], "/sandbox/sandbox"]):
        arguments += ["--dir", folder]  # bwrap itself makes those that are missing private
    for path in spec["read_only"]:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += ["--ro-bind", path, path]
    arguments += ["--ro-bind", spec["package"], "/sandbox/sandbox", "--proc", "/proc"]
    for name in namespaces.DEVICES:
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for place, target in namespaces.LINKS.items():
        arguments += ["--symlink", target, f"/{place}"]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]
    command = [spec["interpreter"], *spec["flags"], "-c", BOOT, "/sandbox", json.dumps(spec)]
    return [*arguments, "--", *command]


def _parents(paths: list[str]) -> list[str]:
    """The folders above these paths, from the root down."""
    above = {str(parent) for path in paths for parent in pathlib.PurePosixPath(path).parents}
    return sorted(above - {"/", *paths})
