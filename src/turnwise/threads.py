"""The one place where thread counts and the wait policy of the numerical library are set.

Idle OpenMP threads spin for long by default; on shared cores that slows every neighbour down,
tenfold when two processes with two threads each share two cores. Not to spin at all costs a small
model half its speed, because it waits often and shortly. So threads spin shortly, then sleep.
"""

import os

SPINS = "20000"
"""Turns of the waiting loop before an idle thread sleeps: some tens of microseconds."""


def configure_threads(count: int) -> None:
    """Use `count` threads in this process, and let idle ones sleep soon.

    The wait policy is read when torch is loaded for the first time, so call this before.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(count)
