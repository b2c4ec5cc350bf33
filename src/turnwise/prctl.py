"""The system call prctl, for which Python 3.11 has no function.

Standard library only: sandboxes load this in an interpreter without site-packages.
"""

import ctypes
import os

PDEATHSIG, DUMPABLE, SUBREAPER, NO_NEW_PRIVS = 1, 4, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(PR_…, value, 0, 0, 0)."""
    # The call is variadic and reads whole registers: no argument may be a narrower int.
    zero = ctypes.c_ulong(0)
    if _libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
