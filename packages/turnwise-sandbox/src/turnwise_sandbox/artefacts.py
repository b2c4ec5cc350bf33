"""The rule for files that leave a sandbox: allow-listed, plain, small, not self-running.

Standard library only: the supervisor gathers inside by the rules by which the host checks.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

AUTOMATIC = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    "*.pyc",
)
"""Files that change how other code is run without being asked for by name."""
LONGEST_NAME = 255
"""Bytes that Linux takes, without folders."""
AUTOMATIC_FOLDERS = (".git", ".hg", "__pycache__")


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether an allow-list has this relative path: part by part, `*` within a part; a last part
    `**` stands for everything below.

    >>> matches("src/a/b.py", ["src/**"]), matches("src/a/b.py", ["src/*.py"])
    (True, False)
    """
    return any(_fits(path.split("/"), pattern.split("/")) for pattern in patterns)


def _fits(parts: list[str], pattern: list[str]) -> bool:
    if pattern[-1] == "**":
        pattern = pattern[:-1]
        if len(parts) <= len(pattern):
            return False
        parts = parts[: len(pattern)]
    return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))


def plain_path(path: str) -> bool:
    """Whether a path stays below the folder that it is relative to."""
    inside = not any(part in ("", ".", "..") for part in path.split("/"))
    return inside and "\0" not in path


def refusal(path: str) -> str:
    """Why a file of this name may not be passed on, or nothing."""
    parts = path.split("/")
    if not plain_path(path):
        return "not a plain relative path"
    if not path.isprintable() or "\\" in path or len(path.encode(errors="replace")) > 512:
        return "an odd name"
    if any(len(part.encode(errors="replace")) > LONGEST_NAME for part in parts):
        return "an odd name"
    if any(part in AUTOMATIC_FOLDERS for part in parts[:-1]):
        return "in a folder that runs by itself"
    if parts[-1] in AUTOMATIC_FOLDERS or any(fnmatchcase(parts[-1], one) for one in AUTOMATIC):
        return "a file that runs by itself"
    return ""


def gather(
    folder: str, patterns: Sequence[str], max_bytes: int, max_files: int
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The allow-listed files of a folder by relative path, and those refused with the reason.

    Refused are links of both kinds, special files, names of `refusal`, and what goes beyond
    `max_bytes` or `max_files` in all. Nothing may be running in the folder any more.
    """
    taken: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    left = max_bytes
    for path in _walk(folder):
        if not matches(path, patterns):
            continue
        if len(taken) + len(refused) >= max_files:
            break
        reason, content = refusal(path), b""
        if not reason:
            reason, content = _read(os.path.join(folder, path), left)
        if reason:
            refused[path] = reason
        else:
            taken[path] = content
            left -= len(content)
    return taken, refused


def _walk(folder: str) -> Iterator[str]:
    """Everything but folders, by relative path, in order; links are not followed, and folders that
    cannot be read, or have too long a path, are passed over."""
    # A loop, since folders may be nested deeper than Python calls.
    waiting = [""]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, place)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        folders = [entry.name for entry in entries if _is_folder(entry)]
        below = set(folders)
        for entry in entries:
            if entry.name not in below:
                yield os.path.join(place, entry.name)
        waiting += [os.path.join(place, name) for name in reversed(folders)]


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _read(path: str, max_bytes: int) -> tuple[str, bytes]:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file", b""
        # Another name may lie outside the folder: the code chose what it is a name of.
        if status.st_nlink != 1:
            return "a file with several names", b""
        if status.st_size > max_bytes:
            return "too large", b""
        # Neither a link is followed nor a pipe waited for that took the file's place just now.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            content = file.read(max_bytes + 1)
    except OSError:
        return "not readable", b""
    return ("too large", b"") if len(content) > max_bytes else ("", content)


def write_files(folder: str, files: Mapping[str, bytes]) -> None:
    """Write files below a folder that has no other writer yet; ValueError for a path outside."""
    for path, content in sorted(files.items()):
        if not plain_path(path):
            raise ValueError(f"{path!r} is not a plain relative path")
        place = folder
        for part in path.split("/")[:-1]:  # os.makedirs calls itself for each
            place = os.path.join(place, part)
            with contextlib.suppress(FileExistsError):
                os.mkdir(place)
        with open(os.path.join(folder, path), "xb") as file:
            file.write(content)
