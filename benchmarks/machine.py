"""What figures depend on, and what this machine can do at most: matrix products and memory."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

MATRIX, SMALL = 2048, 256
SLOW = 5.0
"""GFLOP/s of a small product below which no large one is tried: it would take seconds."""
COPIED = 1 << 26
"""float32 numbers, 256 MiB: more than a cache's share of one tenant of the machine."""
REPEATS = 7


def describe(threads: int) -> dict[str, Any]:
    """Cores, threads, load and versions."""
    return {
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def rates() -> dict[str, float]:
    """GFLOP/s of square products of 2048, in float32 and in bfloat16, and GB/s of copying memory
    (read and written bytes). The best of some tries: what the machine can do. A type
    that is slow is measured by products of 256."""
    import torch

    found = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        for size in (SMALL, MATRIX):
            left, right = torch.randn(2, size, size).to(dtype)
            seconds = fastest(lambda left=left, right=right: left @ right)
            rate = 2 * size**3 / seconds / 1e9
            if rate < SLOW:
                break
        found[f"{name} product, GFLOP/s"] = round(rate, 1)
    source, target = torch.ones(COPIED), torch.empty(COPIED)
    seconds = fastest(lambda: target.copy_(source))
    found["memory, GB/s"] = round(2 * 4 * COPIED / seconds / 1e9, 1)
    return found


def fastest(work: Callable[[], object]) -> float:
    """Seconds, the least of some tries after one that does not count."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])
