"""C files built by the machine's compiler, and kept in the cache folder.

What is built uses the pool of threads that PyTorch has, so both are never at work at once. Where
there is no gcc, no Linux or no GNU OpenMP in PyTorch, nothing is built. Not here: what the files
compute (`decode.c`, `tiles.c`, `training.c`).
"""

import ctypes
import hashlib
import logging
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from turnwise.folders import cache_folder

FOLDER = Path(__file__).parent
SHARED = ("numbers.h", "attention.h", "gate.h")
"""What the files include."""
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
    *("-fassociative-math", "-freciprocal-math"),
)
"""Not -ffast-math: linked with it, a library changes how the whole process rounds, and it forgets
that numbers may be none, by which weights that have diverged are found out."""
X86_FLAGS = ("-mprefer-vector-width=512",)
COMPILER_SECONDS = 60.0

logger = logging.getLogger(__name__)


def library(name: str, macros: Sequence[str]) -> ctypes.CDLL | None:
    """A file of this folder, built with macros ("-DSIZE=32") or found in the cache; None where it
    cannot be built, which is said if there is a compiler that fails."""
    compiler, threads = shutil.which("gcc"), _threads_of_torch()
    if compiler is None or threads is None:
        return None
    extra = X86_FLAGS if platform.machine() == "x86_64" else ()
    source = FOLDER / name
    try:
        return _kept_or_built(source, [compiler, *FLAGS, *extra, *macros], threads)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        logger.warning("gcc cannot build %s, so all is slower: %s", name, told)
        return None


def _kept_or_built(source: Path, command: list[str], threads: Path) -> ctypes.CDLL:
    """From the cache folder, or built, and kept there if it can be written."""
    try:
        kept = cache_folder() / f"{source.stem}-{_key(source, command, threads)}.so"
    except RuntimeError:  # nobody's home is known
        kept = None
    if kept is not None:
        with suppress(OSError):
            return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory() as folder:
        middle, built = Path(folder) / "kernels.o", Path(folder) / "kernels.so"
        _run([*command, "-c", str(source), "-o", str(middle)])
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


def _key(source: Path, command: list[str], threads: Path) -> str:
    """Another one for another source, compiler, command, pool of threads or processor."""
    version = subprocess.run(
        [command[0], "--version"], capture_output=True, timeout=COMPILER_SECONDS, check=False
    )
    described = Path("/proc/cpuinfo").read_text().splitlines()
    processor = [line for line in described if line.startswith(("flags", "Features"))]
    files = (source, *(FOLDER / name for name in SHARED))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files) + version.stdout)
    digest.update(" ".join([*command, str(threads), *processor[:1]]).encode())
    return digest.hexdigest()[:16]
