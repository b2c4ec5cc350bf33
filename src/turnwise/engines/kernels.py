"""`kernels.c`, built by the machine's C compiler for one shape of model, and called from Python.

A compiled file is kept in the cache folder. It uses the pool of threads that PyTorch has, so both
are never at work at once. Where there is no gcc, no Linux or no GNU OpenMP in PyTorch, there are no
kernels, and PyTorch's own are used. Not here: what a forward pass is made of (`decode.py`).
"""

import ctypes
import hashlib
import logging
import platform
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from turnwise.folders import cache_folder

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
    *("-fassociative-math", "-freciprocal-math"),
)
"""Not -ffast-math: linked with it, a library changes how the whole process rounds, and it forgets
that numbers may be none, by which weights that have diverged are found out."""
X86_FLAGS = ("-mprefer-vector-width=512",)
MACROS: dict[torch.dtype, tuple[str, ...]] = {
    torch.float32: (),
    torch.bfloat16: ("-DBFLOAT16",),
}
SIZES = 32
"""The size of a head is a multiple of it."""
LANES = 16
COMPILER_SECONDS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shape:
    """Of a model's attention: what the kernels are compiled for."""

    heads: int
    key_heads: int
    size: int
    """Of a head."""
    dtype: torch.dtype

    @property
    def packed(self) -> int:
        """Queries, keys and values of a token, side by side."""
        return (self.heads + 2 * self.key_heads) * self.size


@dataclass(frozen=True)
class Rows:
    """Where the token of each of n rows stands; int64[n] each."""

    positions: Tensor
    """In its text."""
    targets: Tensor
    """In the pool: where its keys and values are written."""
    starts: Tensor
    """In the pool: the first place that it attends to."""
    lengths: Tensor
    """How many places it attends to; at least 1."""
    longest: int
    """Of these lengths."""


class Kernels:
    """What a decode step does between matrix products. Tensors are contiguous, of the shape's type
    where nothing else is said."""

    def __init__(self, library: ctypes.CDLL, shape: Shape) -> None:
        pointer, count, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
        self._normalize = library.normalize
        self._normalize.argtypes = [*[pointer] * 3, count, count, real, ctypes.c_int32]
        self._gate = library.gate
        self._gate.argtypes = [*[pointer] * 2, count, count, ctypes.c_int32]
        self._attend = library.attend
        self._attend.argtypes = [*[pointer] * 12, count, count, real, ctypes.c_int32]
        for function in (self._normalize, self._gate, self._attend):
            function.restype = None
        self._shape = shape

    def normalize(self, states: Tensor, weights: Tensor, epsilon: float) -> Tensor:
        """States [n, width] over their root mean squares, times weights [width]."""
        rows, width = states.shape
        found = torch.empty_like(states)
        pointers = states.data_ptr(), weights.data_ptr(), found.data_ptr()
        self._normalize(*pointers, rows, width, epsilon, torch.get_num_threads())
        return found

    def gate(self, both: Tensor) -> Tensor:
        """silu(gates) * ups, [n, inner], of [n, 2 * inner]: gates, then ups."""
        rows, inner = len(both), both.shape[1] // 2
        found = both.new_empty(rows, inner)
        self._gate(both.data_ptr(), found.data_ptr(), rows, inner, torch.get_num_threads())
        return found

    def attend(
        self,
        packed: Tensor,
        norms: Tensor | None,
        rotation: tuple[Tensor, Tensor],
        rows: Rows,
        pool: tuple[Tensor, Tensor],
        epsilon: float,
    ) -> Tensor:
        """[n, heads * size] of `packed` [n, shape.packed], one token of each row, whose keys and
        values are written into the pool first.

        `norms` are weights [heads + key heads, size]; `rotation` cosines and sines of every
        position, float32[positions, size], the sines of the first half negative; `pool` keys and
        values, [places, key heads, size] each.
        """
        shape, count, threads = self._shape, len(packed), torch.get_num_threads()
        stride = -(-rows.longest // LANES) * LANES
        found = packed.new_empty(count, shape.heads * shape.size)
        size = threads, shape.heads, stride
        scratch = torch.empty(size, dtype=torch.float32, device=packed.device)
        places = (rows.positions, rows.targets, rows.starts, rows.lengths)
        tensors = (packed, norms, *rotation, *places, *pool, found, scratch)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self._attend(*pointers, stride, count, epsilon, threads)
        return found


@cache
def kernels_for(shape: Shape) -> Kernels | None:
    """Built, or found in the cache; None where they cannot be built, which is said if there is a
    compiler that fails."""
    compiler, threads = shutil.which("gcc"), _threads_of_torch()
    if compiler is None or threads is None or shape.size % SIZES or shape.dtype not in MACROS:
        return None
    macros = [f"-DHEADS={shape.heads}", f"-DKEY_HEADS={shape.key_heads}", f"-DSIZE={shape.size}"]
    extra = X86_FLAGS if platform.machine() == "x86_64" else ()
    command = [compiler, *FLAGS, *extra, *macros, *MACROS[shape.dtype]]
    try:
        library = _kept_or_built(command, threads)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        logger.warning("gcc cannot build %s, so sampling is slower: %s", SOURCE.name, told)
        return None
    return Kernels(library, shape)


def _kept_or_built(command: list[str], threads: Path) -> ctypes.CDLL:
    """From the cache folder, or built, and kept there if it can be written."""
    try:
        kept = cache_folder() / f"kernels-{_key(command, threads)}.so"
    except RuntimeError:  # nobody's home is known
        kept = None
    if kept is not None:
        with suppress(OSError):
            return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory() as folder:
        middle, built = Path(folder) / "kernels.o", Path(folder) / "kernels.so"
        _run([*command, "-c", str(SOURCE), "-o", str(middle)])
        _run([command[0], "-shared", str(middle), str(threads), "-lm", "-o", str(built)])
        if kept is not None:
            with suppress(OSError):
                _keep(built, kept)
        return ctypes.CDLL(str(built))


def _keep(built: Path, kept: Path) -> None:
    """Whole or not at all, whoever else does the same."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        shutil.copyfile(built, Path(folder) / kept.name).replace(kept)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILER_SECONDS)


def _threads_of_torch() -> Path | None:
    """GNU's OpenMP as PyTorch has loaded it; None where it has another one."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    lines = [line for line in maps.read_text().splitlines() if "libgomp" in line]
    loaded = {Path(line.split(maxsplit=5)[-1]) for line in lines}
    package = Path(torch.__file__).resolve().parent
    own = {
        path for path in loaded if path.parent in (package / "lib", package.parent / "torch.libs")
    }
    found = own or loaded  # not of its own: the system's, which all share
    return found.pop() if len(found) == 1 else None


def _key(command: list[str], threads: Path) -> str:
    """Another one for another source, compiler, command, pool of threads or processor."""
    version = subprocess.run(
        [command[0], "--version"], capture_output=True, timeout=COMPILER_SECONDS, check=False
    )
    described = Path("/proc/cpuinfo").read_text().splitlines()
    processor = [line for line in described if line.startswith(("flags", "Features"))]
    digest = hashlib.sha256(SOURCE.read_bytes() + version.stdout)
    digest.update(" ".join([*command, str(threads), *processor[:1]]).encode())
    return digest.hexdigest()[:16]
