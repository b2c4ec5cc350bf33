"""A rank of the learner but the first: it does what the driver sends, until the driver ends.

The driver's end of its standard input closes when the driver ends in whatever way; then this
process ends too, wherever it is. Not here: the driver's side (`team.py`).
"""

import os
import pickle
import queue
import signal
import struct
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, BinaryIO

from turnwise.stopping import EXIT_CODES
from turnwise.threads import configure_threads

LENGTH = struct.Struct("<Q")
READY = b"ready\n"


def main(rank: int, count: int, port: int, device: str, threads: int, seconds: float) -> None:
    """Join the other ranks, and do as the driver does from then on."""
    for number in (signal.SIGINT, *EXIT_CODES):
        signal.signal(number, signal.SIG_IGN)  # the driver gets them as well, and ends the ranks
    messages: queue.Queue[bytes] = queue.Queue()
    reader = threading.Thread(target=_read, args=(sys.stdin.buffer, messages), daemon=True)
    reader.start()
    configure_threads(threads)
    from turnwise.cluster.learners.parts import MAKERS
    from turnwise.cluster.learners.process_group import join, visit

    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    ranks = join(visit(count, port, seconds), rank, count, device, seconds)
    parts: Any = None
    while True:
        name, arguments = pickle.loads(messages.get())
        if name in MAKERS:
            parts = MAKERS[name](ranks, *arguments)
        else:
            getattr(parts, name)(*arguments)


def _read(stream: BinaryIO, messages: "queue.Queue[bytes]") -> None:
    """Take messages from the driver, and end the process when there is none any more."""
    while len(head := stream.read(LENGTH.size)) == LENGTH.size:
        messages.put(stream.read(LENGTH.unpack(head)[0]))
    os._exit(0)


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End at once: an orderly end would wait for the reader, and for other ranks. Where torch is
    the caller, `sys.stderr` is a buffer."""
    traceback.print_exception(kind, error, trace, file=sys.__stderr__)
    if sys.__stderr__ is not None:
        sys.__stderr__.flush()
    os._exit(1)


if __name__ == "__main__":
    rank, count, port, device, threads, seconds = sys.argv[1:]
    sys.excepthook = _end
    main(int(rank), int(count), int(port), device, int(threads), float(seconds))
