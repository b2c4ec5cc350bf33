"""Isolation by bubblewrap (`bwrap`), the tool that Flatpak uses: namespaces set up by others' code.

Standard library only; runs in the launcher. The code sees what it sees under `namespaces`, built
by bwrap. What bwrap itself starts in it is only `cat`, which keeps the namespaces; the supervisor
is forked from the launcher and then joins them, so that no interpreter has to start. The code is in
a process namespace within bwrap's, in which neither has a number, with a /proc of that. All of it
ends with bwrap. What may be written is mounted by the supervisor: bwrap has no option for the
number of files. Needs Linux 5.8 (joining by a descriptor of a process) and the right to make user
namespaces.

Started by root, bwrap runs in a user namespace in which its root is user 65534 to the rest of the
machine, and the code is 65533: the kernel does not limit the number of processes of root's own.

What it is not: a virtual machine; see `namespaces`.
"""

import json
import os
import pathlib
from typing import NoReturn

from turnwise.sandbox import kernel, namespaces, protocol, supervisor

_SCRATCH = ("/dev/shm", "/tmp", "/work")
_BELOW_SCRATCH = tuple(f"{place}/" for place in _SCRATCH)
_BUILT = kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP
"""The namespaces that are joined when bwrap has finished with them."""


def start(spec: protocol.Message, descriptors: list[int]) -> list[int]:
    """Start bwrap, and a supervisor in what it builds; returns the pids of bwrap and of its process
    1. Raises OSError where bwrap does not start."""
    held, hold = os.pipe()
    answer, answer_end = os.pipe()
    try:
        started = _start_bwrap(spec, held, answer_end)
        if os.fork() == 0:
            _join(spec, started[1], [*descriptors, hold, answer])
    finally:
        for one in (held, hold, answer, answer_end):
            os.close(one)
    return started


def _start_bwrap(spec: protocol.Message, stdin: int, stdout: int) -> list[int]:
    information, say_information = os.pipe()
    mapped, say_mapped = os.pipe()
    as_root = os.geteuid() == 0
    child = kernel.clone(kernel.NEWUSER) if as_root else os.fork()
    if child == 0:
        os.close(say_mapped)
        if os.read(mapped, 1) != b"!":
            os._exit(1)
        _execute(spec, [stdin, stdout, say_information], as_root)
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


def _execute(spec: protocol.Message, descriptors: list[int], as_root: bool) -> NoReturn:
    try:
        stdin, stdout, information = namespaces.keep_only(descriptors)
        for target, source in enumerate((stdin, stdout)):
            os.dup2(source, target)
            os.close(source)
        if as_root:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        os.execv(spec["bwrap"], _arguments(spec, information, as_root))
    finally:
        os._exit(1)


def _join(spec: protocol.Message, process: int, descriptors: list[int]) -> NoReturn:
    """Send a supervisor, from a child of the launcher, into the namespaces of bwrap's process 1.

    The last two descriptors are `cat`'s stdin and stdout. It ends with its stdin, which is open as
    long as the supervisor lives.
    """
    *descriptors, hold, answer = namespaces.keep_only(descriptors)
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
        place = os.pidfd_open(process)
        kernel.join(place, kernel.NEWUSER | kernel.NEWPID)
        # Only a child is in the process namespace, and only a process in it can make one below.
        if kernel.clone(kernel.PARENT):
            os._exit(0)
        # Its answer says that all is built, and that the process was still this one.
        os.write(hold, b"!")
        if os.read(answer, 1) != b"!":
            raise OSError("bwrap ended before its time; its reason is on stderr")
        kernel.join(place, _BUILT)
        os.close(place)
        os.close(answer)
        _settle(spec)
    except BaseException as error:  # noqa: BLE001 - told to the host
        namespaces.say_failed(descriptors[2], error)
    supervisor.main(spec, descriptors)


def _settle(spec: protocol.Message) -> None:
    os.chdir("/")
    # What bwrap has mounted below a folder that may be written would lie hidden under it.
    hidden = [path for path in spec["read_only"] if path.startswith(_BELOW_SCRATCH)]
    links = {path: os.readlink(path) for path in hidden if os.path.islink(path)}
    trees = {path: kernel.open_tree(path) for path in hidden if path not in links}
    namespaces.make_scratch(spec["limits"])
    for path, tree in trees.items():
        namespaces.show_read_only(path, tree)
    for path, target in links.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    if os.getuid() == namespaces.NOBODY:
        spec["beside"] = 1  # `cat`, which is the same user
    namespaces.begin_processes(spec, "/proc")
    namespaces.become_nobody()


def _arguments(spec: protocol.Message, information: int, as_root: bool) -> list[str]:
    user = [] if as_root else ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    arguments = [spec["bwrap"], *user, "--die-with-parent", "--new-session", "--as-pid-1"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup", "--cap-drop", "ALL", "--hostname", "sandbox"]
    arguments += ["--info-fd", str(information)]
    arguments += ["--size", "65536", "--tmpfs", "/dev"]
    for place in _SCRATCH:
        arguments += ["--dir", place]
    for folder in _parents(spec["read_only"]):
        arguments += ["--dir", folder]  # bwrap itself makes those that are missing private
    for path in spec["read_only"]:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += ["--ro-bind", path, path]
    arguments += ["--proc", "/proc"]
    for name, source in namespaces.DEVICES.items():
        arguments += ["--dev-bind", f"/dev/{source}", f"/dev/{name}"]
    for place, target in namespaces.LINKS.items():
        arguments += ["--symlink", target, f"/{place}"]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--", "cat"]


def _parents(paths: list[str]) -> list[str]:
    """The folders above these paths, from the root down."""
    above = {str(parent) for path in paths for parent in pathlib.PurePosixPath(path).parents}
    return sorted(above - {"/", *paths})
