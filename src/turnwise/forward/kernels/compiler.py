"""C files built by the machine's compiler, and kept in the cache folder.

What is built uses the pool of threads that PyTorch has, so both are never at work at once. Nothing
is built without gcc, Linux, or GNU OpenMP in PyTorch, or with `TURNWISE_KERNELS=off`. What is
loaded is run, so a kept file is loaded only if it is whole, ours, and in a folder that no other
user can write. Not here: what the files compute (`decode.c`, `tiles.c`, `training.c`).
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from turnwise.errors import ConfigError
from turnwise.folders import cache_folder

FOLDER = Path(__file__).parent
SHARED = ("numbers.h", "attention.h", "gate.h")
"""Headers that the files include."""
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
    *("-fassociative-math", "-freciprocal-math"),
)
"""Not -ffast-math: linked with it, a library changes how the whole process rounds, and it forgets
that numbers may be none, by which weights that have diverged are found out."""
X86_FLAGS = ("-mprefer-vector-width=512",)
COMPILER_SECONDS = 60.0
SWITCH = "TURNWISE_KERNELS"
"""Environment variable: "off" switches all kernels off, for engine and learner."""

logger = logging.getLogger(__name__)


def library(name: str, macros: Sequence[str]) -> ctypes.CDLL | None:
    """A file of this folder, built with macros ("-DSIZE=32") or found in the cache; None where it
    cannot be built, which is said if there is a compiler that fails, and where kernels are switched
    off. Raises ConfigError for a switch that is neither on nor off."""
    compiler, threads = shutil.which("gcc"), _threads_of_torch()
    if not switched_on() or compiler is None or threads is None:
        return None
    extra = X86_FLAGS if platform.machine() == "x86_64" else ()
    source = FOLDER / name
    try:
        return _kept_or_built(source, [compiler, *FLAGS, *extra, *macros], threads)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        logger.warning("gcc cannot build %s, so all is slower: %s", name, told)
        return None


def switched_on() -> bool:
    """Whether the environment lets kernels run. Raises ConfigError for a word it does not know."""
    word = os.environ.get(SWITCH, "auto")
    if word not in ("auto", "off"):
        raise ConfigError(f"{SWITCH} is {word!r}: set it to off, or to auto, which is the default")
    return word == "auto"


def _kept_or_built(source: Path, command: list[str], threads: Path) -> ctypes.CDLL:
    """The library from the cache folder, or newly built, and kept there if it can be written."""
    folder, name = _own_folder(), f"{source.stem}-{_key(source, command, threads)}"
    for kept in sorted(folder.glob(f"{name}-*.so")) if folder is not None else ():
        if _is_whole(kept):
            with suppress(OSError):
                return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory() as scratch:
        middle, built = Path(scratch) / "kernels.o", Path(scratch) / "kernels.so"
        _run([*command, "-c", str(source), "-o", str(middle)])
        _run([command[0], "-shared", str(middle), str(threads), "-lm", "-o", str(built)])
        if folder is not None:
            with suppress(OSError):
                _keep(built.read_bytes(), folder, name)
        return ctypes.CDLL(str(built))


def _own_folder() -> Path | None:
    """The folder of the kernels, made if need be; None where it cannot be made, or another user
    owns it."""
    try:
        folder = cache_folder() / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            logger.warning("%s is a link or somebody else's: compiled kernels are not kept", folder)
            return None
        folder.chmod(0o700)
    except (OSError, RuntimeError):  # nothing can be written; nobody's home is known
        return None
    return folder


def _is_whole(kept: Path) -> bool:
    """Whether a file is what was kept under its name, and ours; another one is deleted, since to
    load it could end the process. Its name ends with the hash of what it holds."""
    with suppress(OSError):
        found = kept.lstat()
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if ours and not found.st_mode & 0o022 and kept.stem.endswith(_hash(kept.read_bytes())):
            return True
        logger.warning("%s is not what was kept there: it is built again", kept)
        kept.unlink()
    return False


def _keep(built: bytes, folder: Path, name: str) -> None:
    """Keep a built file whole or not at all, whatever other process does so and whenever the
    machine stops."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / "kernels.so"
        with fresh.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(built)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / f"{name}-{_hash(built)}.so")
    entries = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entries)
    finally:
        os.close(entries)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


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
