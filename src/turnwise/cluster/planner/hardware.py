"""GPUs as planners see them: memory, arithmetic, bandwidths, from their makers' data sheets.

Not here: how much of it a program reaches (`speed.py`).
"""

from dataclasses import dataclass
from difflib import get_close_matches

from turnwise.errors import ConfigError


@dataclass(frozen=True)
class Gpu:
    """One GPU. Rates are peaks, without sparsity."""

    name: str
    memory: float
    """GiB."""
    bfloat16: float
    """TFLOP/s of dense matrix products in bfloat16."""
    bandwidth: float
    """TB/s of its memory."""
    network: float
    """GB/s to other machines, for each GPU, as in machines with one adapter for each."""
    per_machine: int = 8
    """GPUs of a machine, as they are usually sold."""


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("t4", 15, 65, 0.32, 3, 1),
        Gpu("a10", 22, 125, 0.6, 3, 4),
        Gpu("l4", 22, 121, 0.3, 3, 8),
        Gpu("l40s", 45, 362, 0.864, 12, 8),
        Gpu("rtx4090", 23, 165, 1.008, 3, 8),
        Gpu("rtx5090", 31, 210, 1.792, 3, 8),
        Gpu("a100-40gb", 39, 312, 1.555, 25, 8),
        Gpu("a100", 79, 312, 2.039, 25, 8),
        Gpu("h20", 95, 148, 4.0, 50, 8),
        Gpu("h100", 79, 989, 3.35, 50, 8),
        Gpu("h200", 140, 989, 4.8, 50, 8),
        Gpu("b200", 179, 2250, 8.0, 50, 8),
        Gpu("gb200", 184, 2500, 8.0, 100, 4),
        Gpu("mi300x", 191, 1307, 5.3, 50, 8),
        Gpu("mi325x", 255, 1307, 6.0, 50, 8),
    )
}
"""GPUs by the names that `--gpu` takes. Memory is what a program can have of it."""


def find_gpu(name: str) -> Gpu:
    """The GPU of a name, in any case, with or without dashes. Raises ConfigError, with the nearest
    names, for one that is not known."""
    wanted = _plain(name)
    for known, gpu in GPUS.items():
        if _plain(known) == wanted:
            return gpu
    near = get_close_matches(name.lower(), GPUS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(GPUS)}"
    raise ConfigError(f"no GPU is called {name!r}: {hint}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("80gb")
