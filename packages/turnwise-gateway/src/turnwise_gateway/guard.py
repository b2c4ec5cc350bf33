"""Stands between a run and an agent's program, so that the program does not outlive the run.

Run as a program by the file's path, with the agent's command as arguments, a pipe as stdin and the
number of another one as the first argument. When the first pipe closes (the run ended, however it
did), the whole group of processes is killed. The reason why a command cannot be started goes to the
other pipe, which the agent does not have. Only the standard library is used.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Start the program, watch, and end with its code."""
    failures = int(sys.argv[1])
    os.set_inheritable(failures, False)
    try:
        program = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    except (OSError, ValueError) as error:
        os.write(failures, str(error).encode()[:1000])
        sys.exit(1)
    threading.Thread(target=_wait_for_owner, daemon=True).start()
    code = program.wait()
    os._exit(code if code >= 0 else 128 - code)


def _wait_for_owner() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
