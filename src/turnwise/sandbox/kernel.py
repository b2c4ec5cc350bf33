"""The Linux system calls that the sandbox needs and Python 3.11 has no function for.

Standard library only: the launcher loads this in an interpreter without site-packages. Not here:
in which order they are called, which is what makes a sandbox.
"""

import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
PARENT = 0x00008000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
MNT_DETACH = 2
ATTRIBUTE_READ_ONLY, ATTRIBUTE_NOSUID, ATTRIBUTE_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC, _MOVE_FROM_EMPTY_PATH = 1, os.O_CLOEXEC, 4
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_SIOCSIFFLAGS = 0x8914
_SYS_CLONE, _SYS_PIVOT_ROOT = (220, 41) if platform.machine() == "aarch64" else (56, 155)

# PyDLL keeps the interpreter's lock, so that clone() may return twice in one thread.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def clone(flags: int) -> int:
    """Like os.fork, in new namespaces, and with `PARENT` as a child of this process's parent. Only
    from a process with a single thread."""
    return _checked(
        "clone", _libc.syscall(_SYS_CLONE, ctypes.c_ulong(flags | signal.SIGCHLD), 0, 0, 0, 0)
    )


def join(process: int, flags: int) -> None:
    """Enter these namespaces of a process, given by a descriptor (`os.pidfd_open`); the process
    namespace is that of later children."""
    _checked("setns", _libc.setns(process, flags))


def unshare(flags: int) -> None:
    """Leave these namespaces for new ones; a new process namespace is that of later children."""
    _checked("unshare", _libc.unshare(flags))


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    """Mount a file system of this kind; with an empty kind, change what is there by `flags`."""
    name = kind.encode() or None
    _checked(
        f"mount {kind or 'flags'} on {target}",
        _libc.mount(name, target.encode(), name, ctypes.c_ulong(flags), options.encode()),
    )


def detach(path: str) -> None:
    """Take a mount and all below it out of this namespace."""
    _checked(f"umount {path}", _libc.umount2(path.encode(), MNT_DETACH))


def open_tree(path: str) -> int:
    """A detached copy of a file or of a folder and all that is mounted in it."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _checked(
        f"open_tree {path}",
        _libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, path.encode(), ctypes.c_uint(flags)),
    )


def attach(tree: int, target: str) -> None:
    """Put a detached copy at a path, which is there."""
    arguments = (tree, b"", _AT_FDCWD, target.encode(), _MOVE_FROM_EMPTY_PATH)
    _checked(f"move_mount to {target}", _libc.syscall(_SYS_MOVE_MOUNT, *arguments))


def set_mount_attributes(place: int | str, attributes: int, *, recursive: bool) -> None:
    """Make a mount (a path, or a detached copy) read-only, nosuid, nodev."""
    wanted = _MountAttributes(attributes, 0, 0, 0)
    where, path = (place, b"") if isinstance(place, int) else (_AT_FDCWD, place.encode())
    flags = (_AT_EMPTY_PATH if isinstance(place, int) else 0) | (_AT_RECURSIVE if recursive else 0)
    _checked(
        "mount_setattr",
        _libc.syscall(
            _SYS_MOUNT_SETATTR,
            where,
            path,
            ctypes.c_uint(flags),
            ctypes.byref(wanted),
            ctypes.c_size_t(ctypes.sizeof(wanted)),
        ),
    )


def pivot_to(folder: str) -> None:
    """Make a mounted folder the root, with nothing of the old root left."""
    os.chdir(folder)
    _checked("pivot_root", _libc.syscall(_SYS_PIVOT_ROOT, b".", b"."))
    detach(".")
    os.chdir("/")


def raise_loopback() -> None:
    """Make the loopback of this network namespace one that answers. Needs CAP_NET_ADMIN in it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up_and_running = struct.pack("16sH22x", b"lo", 0x1 | 0x40)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, up_and_running)


def prctl(option: int, value: int = 0) -> None:
    """prctl(option, value, 0, 0, 0)."""
    zero = ctypes.c_ulong(0)
    _checked(f"prctl {option}", _libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def drop_bounding_set() -> None:
    """Let nothing that this process executes gain a capability. Needs CAP_SETPCAP."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # past the last one that this kernel knows
                return
            raise


def drop_capabilities() -> None:
    """Give up every capability of this process."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header, none = _CapabilityHeader(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _checked("capset", _libc.capset(ctypes.byref(header), none))


def install_filter(program: bytes) -> None:
    """Put a seccomp filter (see `seccomp`) on this process and all that it starts."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    wanted = _FilterProgram(len(program) // 8, program)
    mode, zero = ctypes.c_ulong(2), ctypes.c_ulong(0)
    _checked("seccomp", _libc.prctl(PR_SET_SECCOMP, mode, ctypes.byref(wanted), zero, zero))


def _checked(what: str, result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
