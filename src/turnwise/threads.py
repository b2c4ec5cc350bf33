"""The one place where threads, wait policy and memory of the numerical library are set.

Idle OpenMP threads spin for long by default; on shared cores that slows every neighbour down,
tenfold when two processes with two threads each share two cores. Not to spin at all costs a small
model half its speed, because it waits often and shortly. So threads spin shortly, then sleep.

Sequences come in all lengths. The library keeps a compiled kernel for each shape, megabytes of it,
and the C library keeps what was freed, in pieces: a long run would grow by gigabytes.
"""

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SPINS = "20000"
"""Turns of the waiting loop before an idle thread sleeps: some tens of microseconds."""

KERNELS = "64"
"""Compiled kernels that are kept; few shapes come again before so many others."""
SYSTEM = Path("/sys")
CPUINFO = Path("/proc/cpuinfo")


def physical_cores(system: Path = SYSTEM) -> int:
    """The number of physical cores that this process may use, at least 1: those of its affinity
    mask, and no more than its control group's share of processor time. Two threads of one core
    count once, since they share what multiplies."""
    allowed = processors()
    cores = {_siblings(system, number) for number in allowed}
    return max(1, min(len(cores), _quota(system)))


def cpuinfo(*fields: str) -> list[str]:
    """The values that Linux gives for these fields of its processors, each once; none elsewhere."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    told = (line.partition(":") for line in lines)
    return sorted({value.strip() for name, _, value in told if name.strip() in fields})


def processors() -> set[int]:
    """The numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(system: Path, number: int) -> str:
    """The threads of a processor's core, as Linux lists them; itself where nothing is known."""
    file = system / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
    with suppress(OSError):
        return file.read_text().strip()
    return str(number)


def _quota(system: Path) -> int:
    """The processors of a control group's quota (cgroup v2, v1), rounded; as many as there are
    where there is none."""
    places = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
    for names in places:
        # Without a quota cgroup v2 says `max`, which is no number, and v1 says -1.
        with suppress(OSError, ValueError, ZeroDivisionError):
            words = " ".join((system / "fs/cgroup" / name).read_text() for name in names).split()
            quota, period = int(words[0]), int(words[1])
            if quota > 0:
                return max(1, round(quota / period))
    return os.cpu_count() or 1


def set_variables() -> None:
    """Set the wait policy and the number of kernels, which are read when torch is loaded for the
    first time: call this before anything may load it."""
    # setdefault throughout: what the user has set stands.
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", KERNELS)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")  # those of transformers for GGUF files


def configure_threads(count: int) -> None:
    """Use `count` threads in this process, and let idle ones sleep soon; loads torch."""
    set_variables()
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(count)


@contextmanager
def frozen_gc() -> Iterator[None]:
    """Inside, the garbage collector leaves alone what is there already: models and libraries are so
    many objects that looking through them takes as long as a few passes of a small model."""
    if gc.get_freeze_count():  # the program around has frozen what was there
        yield
        return
    # First: garbage that is frozen would not be freed inside.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def release_memory() -> None:
    """Give what was freed back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
