"""Stands between turnwise and a server it owns, so that neither outlives the other's group.

Run as a program by the file's path, with the server's command as arguments and a pipe as stdin. The
server and all that it starts are in one process group with this program. When the pipe is closed
(turnwise ended, however it did) or the server's first process ended (however it did), the whole
group ends: asked to at first, so that shared memory is given back, then killed. It is two
processes, since Ray kills the children of a process that it ends: the second one watches, and ends
the group also when the first is gone.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

PATIENCE = 8.0
"""Seconds between asking and killing."""


def main() -> None:
    """Start the server, watch, and end the group."""
    first_lives, first = os.pipe()
    if watcher := os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(first_lives)
        os.waitpid(watcher, 0)  # which ends the group, and this process with it
        os.killpg(0, signal.SIGKILL)
    os.close(first)
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    over = threading.Event()
    for pipe in (0, first_lives):
        threading.Thread(target=_wait_for_end, args=(pipe, over), daemon=True).start()
    threading.Thread(target=_wait_for_server, args=(server, over), daemon=True).start()
    over.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is in the group itself
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and _others():
        time.sleep(0.1)
    os.killpg(0, signal.SIGKILL)


def _wait_for_end(pipe: int, over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(pipe, 1024):
            pass
    over.set()


def _wait_for_server(server: "subprocess.Popen[bytes]", over: threading.Event) -> None:
    code = server.wait()
    print(f"the server's process ended with {code}", flush=True)
    over.set()


def _others() -> bool:
    """Whether the group has another process than these two; True where that cannot be seen."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return True
    own = {os.getpid(), os.getppid()}
    return any(_in_group(name) for name in names if int(name) not in own)


def _in_group(name: str) -> bool:
    try:
        with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            state, _, group = file.read().rpartition(")")[2].split()[:3]
    except OSError:
        return False
    return int(group) == os.getpgrp() and state != "Z"


if __name__ == "__main__":
    main()
