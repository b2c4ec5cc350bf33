"""A rank of the learner but the first: it does what the first one says, until that ends.

The connection to the first rank closes when that ends in whatever way; then this process ends too,
wherever it is.
"""

import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from operator import attrgetter
from types import TracebackType
from typing import Any, BinaryIO

from turnwise.stopping import EXIT_CODES
from turnwise.threads import configure_threads
from turnwise_cluster.learners.launcher import RankSetup, arrive, receive

ENDING = 2.0
"""Seconds that a call has to be over when the first rank has ended."""


def work(setup: RankSetup) -> None:
    """Join the other ranks, and do as the first one does from then on."""
    for number in (signal.SIGINT, *EXIT_CODES):
        signal.signal(number, signal.SIG_IGN)  # the first gets them as well, and ends the others
    configure_threads(setup.threads)
    from turnwise_cluster.learners.parts import MAKERS
    from turnwise_cluster.learners.process_group import join, visit

    connection = arrive(setup)
    messages: queue.Queue[bytes | None] = queue.Queue()
    stream = connection.makefile("rb")
    threading.Thread(target=_read, args=(stream, messages), daemon=True).start()
    ranks = join(visit(setup, connection.getsockname()[0]), setup)
    parts: Any = None
    while (message := messages.get()) is not None:
        name, arguments = pickle.loads(message)
        if name in MAKERS:
            parts = MAKERS[name](ranks, *arguments)
        else:
            attrgetter(name)(parts)(*arguments)


def work_on_node(setup: RankSetup) -> None:
    """Be a rank in a process that is there already, on any node: as one of this machine would be,
    with its folder, modules and log."""
    os.chdir(setup.folder)
    sys.path += [place for place in setup.path if place not in sys.path]
    with open(setup.log, "wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)  # what C libraries print, too
    try:
        work(setup)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        raise


def _read(stream: BinaryIO, messages: "queue.Queue[bytes | None]") -> None:
    """Take messages from the first rank, and end the process when there is none any more."""
    while (message := receive(stream)) is not None:
        messages.put(message)
    messages.put(None)
    time.sleep(ENDING)
    os._exit(0)


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End at once: an orderly end would wait for other ranks. Where torch is the caller,
    `sys.stderr` is a buffer."""
    traceback.print_exception(kind, error, trace, file=sys.__stderr__)
    if sys.__stderr__ is not None:
        sys.__stderr__.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.excepthook = _fail
    work(pickle.load(sys.stdin.buffer))
    os._exit(0)
