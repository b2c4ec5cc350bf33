"""The program of a shell call: unpack a folder, run a command in it, pack the folder again.

Standard library only: this text is itself the program (see tools/workspace.py). The command can
change what is packed; the folder is the agent's anyway. Each entry has its length before it, so
that reading never takes more than is there: an archive's format can name gigabytes that it does not
have.
"""

import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator

PACKED = "workspace.by.turnwise"
COMMAND = "command.by.turnwise"
FOLDER = "workspace"

_HEADER = struct.Struct(">cHII")
"""Kind (f, d or l for a file, a folder, a link), mode, lengths of path and content."""
Packed = tuple[str, str, int, bytes]
"""Path, kind, mode, and content; a link's is where it leads."""


def pack(entries: Iterable[Packed]) -> Iterator[bytes]:
    """Entries as bytes."""
    for path, kind, mode, content in entries:
        name = os.fsencode(path)
        yield _HEADER.pack(kind.encode(), mode, len(name), len(content)) + name
        yield content


def unpack(data: bytes, most: int) -> Iterator[Packed]:
    """The entries of a packed folder, which may be untrusted. Raises ValueError for anything else,
    and after `most` entries."""
    place, count = 0, 0
    while place < len(data):
        count += 1
        if count > most:
            raise ValueError(f"they are more than {most}")
        begin = place + _HEADER.size
        if begin > len(data):
            raise ValueError("they are damaged")
        kind, mode, name_length, length = _HEADER.unpack_from(data, place)
        place = begin + name_length + length
        if place > len(data) or kind not in (b"f", b"d", b"l"):
            raise ValueError("they are damaged")
        name = os.fsdecode(data[begin : begin + name_length])
        yield name, kind.decode(), mode & 0o777, data[begin + name_length : place]


def read(folder: str) -> Iterator[Packed]:
    """Files, folders and links, in order, without sockets and pipes; what its owner may not read is
    made readable first."""
    waiting = [""]
    while waiting:
        place = waiting.pop()
        with os.scandir(os.path.join(folder, place)) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            path, mode = os.path.join(place, entry.name), entry.stat(follow_symlinks=False).st_mode
            if entry.is_symlink():
                yield path, "l", 0o777, os.fsencode(os.readlink(entry.path))
            elif entry.is_dir():
                os.chmod(entry.path, mode | 0o700)
                waiting.append(path)
                yield path, "d", mode & 0o777, b""
            elif entry.is_file():
                os.chmod(entry.path, mode | 0o400)
                with open(entry.path, "rb") as file:
                    yield path, "f", mode & 0o777, file.read()


def write(folder: str, entries: Iterable[Packed]) -> None:
    os.mkdir(folder)
    modes = []
    for path, kind, mode, content in entries:
        place = folder
        for part in path.split("/")[:-1]:
            place = os.path.join(place, part)
            if not os.path.isdir(place):
                os.mkdir(place)
        whole = os.path.join(folder, path)
        if kind == "l":
            os.symlink(os.fsdecode(content), whole)
            continue
        if kind == "f":
            with open(whole, "xb") as file:
                file.write(content)
        elif not os.path.isdir(whole):
            os.mkdir(whole)
        modes.append((whole, mode))
    for whole, mode in reversed(modes):  # a folder that may not be written comes last
        os.chmod(whole, mode)


def run() -> int:
    """The command's exit status, as a shell has it."""
    with open(COMMAND) as file:
        command = file.read()
    with open(PACKED, "rb") as packed:
        write(FOLDER, unpack(packed.read(), sys.maxsize))
    os.remove(PACKED)
    os.remove(COMMAND)
    done = subprocess.run(["sh", "-c", command], cwd=FOLDER, stdin=subprocess.DEVNULL, check=False)
    try:
        with open(PACKED, "wb") as result:
            result.writelines(pack(read(FOLDER)))
    except OSError as error:
        if os.path.isfile(PACKED):
            os.remove(PACKED)
        print(f"the files cannot be packed: {error}", file=sys.stderr)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode  # -N is signal N


def main() -> None:
    sys.exit(run())
