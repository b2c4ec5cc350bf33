"""No isolation: limits of the kernel on each process, and a user of its own if started by root.

Standard library only; runs in the launcher. The code can read what its user can read, reach the
network, and fill the disk with many files below the size limit of one. Started by root, each
sandbox has a user of its own (65000 and up), so that its processes cannot touch the warden or one
another; started by anybody else, the code is as mighty as who started it, and can kill the warden.
Results say `rlimits`, and a `Sandbox` takes this tier only with `allow_unisolated`.
"""

import os
import shutil
import tempfile

from turnwise.sandbox import kernel, namespaces, warden, wire

FIRST_USER, USERS = 65000, 500


def prepare(spec: wire.Message, taken: set[int]) -> None:
    """Give the sandbox a folder, and a user that no other has (`taken`: those in use)."""
    # The work folder is one deeper than the code may rename anything.
    outer = tempfile.mkdtemp(prefix="turnwise-sandbox-")
    os.chmod(outer, 0o711)
    spec["work"] = os.path.join(outer, "work")
    os.mkdir(spec["work"])
    if os.geteuid() == 0:
        free = (user for user in range(FIRST_USER, FIRST_USER + USERS) if user not in taken)
        spec["user"] = next(free)
        os.chown(spec["work"], spec["user"], spec["user"])


def start(spec: wire.Message, descriptors: list[int]) -> list[int]:
    """Start a warden to which orphans of its descendants come back; returns its pid."""
    child = os.fork()
    if child == 0:
        descriptors = namespaces.keep_only(descriptors)
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        os.environ["HOME"] = os.environ["TMPDIR"] = spec["work"]
        warden.main(spec, descriptors)
    return [child]


def clean(spec: wire.Message) -> None:
    """Remove the folder; links in it are not followed."""
    shutil.rmtree(os.path.dirname(spec["work"]), ignore_errors=True)
