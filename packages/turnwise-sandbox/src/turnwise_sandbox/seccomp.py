"""The system calls that code in bubblewrap may not make, as a seccomp filter (classic BPF) for
`bwrap --seccomp`.

A denied call fails with EPERM, so that a program can say what went wrong. Denied is what a program
without any right could do: make namespaces, in which it would have rights; look into other
processes or hold them up, the supervisor above all; and take what is the machine's and no limit
counts, such as memory without a file (memfd, System V shared memory). It is no list of what is
allowed: a defect of the kernel in an ordinary call remains reachable.
"""

import errno
import functools
import platform
import struct

DENIED = {
    # name: number on (x86_64, aarch64); None where there is no such call
    "add_key": (248, 217),
    "bpf": (321, 280),
    "fanotify_init": (300, 262),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "move_pages": (279, 239),
    "msgget": (68, 186),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setns": (308, 268),
    "shmget": (29, 194),
    "syslog": (103, 116),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
MMAP, SETSOCKOPT = (9, 222), (54, 208)
OF_ITSELF = {
    # name: number on (x86_64, aarch64), and the arguments that are 0 for the one that asks
    "prlimit64": ((302, 261), (0,)),
    "sched_setaffinity": ((203, 122), (0,)),
    "sched_setattr": ((314, 274), (0,)),
    "sched_setparam": ((142, 118), (0,)),
    "sched_setscheduler": ((144, 119), (0,)),
    "setpriority": ((141, 140), (0, 1)),
}
"""Limits and places that a process may change for itself alone."""
MAP_TYPE, MAP_SHARED, MAP_ANONYMOUS = 0x0F, 0x01, 0x20
SOL_SOCKET, SO_SNDBUF = 1, 7
NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of linux/sched.h."""
SOCKET_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6. AF_VSOCK would reach a virtual machine's host past the namespace."""

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables above, and AUDIT_ARCH of linux/audit.h."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ARGUMENT = 8  # bytes of each
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000


@functools.cache
def filter_program(machine: str = "") -> bytes:
    """An array of `struct sock_filter`, for this machine if none is named. Raises OSError for one
    whose calls are not known."""
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    column, architecture = ARCHITECTURES[machine]
    # The last two numbers of an instruction are how many to skip if it holds, and if not.
    denied = [numbers[column] for numbers in DENIED.values()]
    deny = _instruction(_RETURN, _ERRNO | errno.EPERM)
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, architecture, 1, 0),
        deny,  # calls of the 32-bit interface have other numbers
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_instruction(_AT_LEAST, _X32, 0, 1), deny]
    for number in denied:
        if number is not None:
            program += [_instruction(_EQUAL, number, 0, 1), deny]
    # The flags of clone3 are in memory, which a filter cannot read: glibc then takes clone.
    program += [
        _instruction(_EQUAL, CLONE3[column], 0, 1),
        _instruction(_RETURN, _ERRNO | errno.ENOSYS),
        _instruction(_EQUAL, CLONE[column], 0, 4),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_ANY_BIT, NAMESPACE_FLAGS, 0, 1),
        deny,
        _instruction(_RETURN, _ALLOW),
    ]
    for numbers, zeros in OF_ITSELF.values():
        program.append(_instruction(_EQUAL, numbers[column], 0, 3 * len(zeros) + 1))
        for position in zeros:
            program.append(_instruction(_LOAD, _FIRST_ARGUMENT + position * _ARGUMENT))
            program += [_instruction(_EQUAL, 0, 1, 0), deny]
        program.append(_instruction(_RETURN, _ALLOW))
    program += [
        # Memory shared without a file, which stays when no process shows it any more.
        _instruction(_EQUAL, MMAP[column], 0, 5),
        _instruction(_LOAD, _FIRST_ARGUMENT + 3 * _ARGUMENT),
        _instruction(_AND, MAP_TYPE | MAP_ANONYMOUS),
        _instruction(_EQUAL, MAP_SHARED | MAP_ANONYMOUS, 0, 1),
        deny,
        _instruction(_RETURN, _ALLOW),
        # The size of a socket's buffer stays as it is, which the call may do anyway.
        _instruction(_EQUAL, SETSOCKOPT[column], 0, 6),
        _instruction(_LOAD, _FIRST_ARGUMENT + _ARGUMENT),
        _instruction(_EQUAL, SOL_SOCKET, 0, 3),
        _instruction(_LOAD, _FIRST_ARGUMENT + 2 * _ARGUMENT),
        _instruction(_EQUAL, SO_SNDBUF, 0, 1),
        _instruction(_RETURN, _ERRNO),
        _instruction(_RETURN, _ALLOW),
        _instruction(_EQUAL, SOCKET[column], 0, 2 + len(SOCKET_FAMILIES)),
        _instruction(_LOAD, _FIRST_ARGUMENT),
    ]
    for position, family in enumerate(SOCKET_FAMILIES):
        program.append(_instruction(_EQUAL, family, len(SOCKET_FAMILIES) - position, 0))
    program += [deny, _instruction(_RETURN, _ALLOW)]
    return b"".join(program)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
