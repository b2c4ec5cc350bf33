"""A `.git` folder with one commit of the files that there are, made without git; and files of a
commit of a user's repository, read with git.

There is no history in the folder: no earlier and no later commit, no branch but one, no log. It is
the same for the same files. The formats are those of git's documentation (gitformat-pack,
gitformat-index). Not here: what git does with it.
"""

import hashlib
import io
import struct
import subprocess
import tarfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from turnwise.errors import DataError, InfrastructureError
from turnwise.tools.workspace import Entry

AUTHOR = "turnwise <turnwise@localhost> 946684800 +0000"
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
USER = "[user]\n\tname = agent\n\temail = agent@localhost\n"
BRANCH = "refs/heads/main"
SECONDS = 60.0
"""That a call of git may take."""
_KINDS = {"commit": 1, "tree": 2, "blob": 3}


def git_folder(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries below `.git` of a repository with one commit of these files and links."""
    files = {path: entry for path, entry in entries.items() if entry.kind != "folder"}
    objects = dict[bytes, tuple[str, bytes]]()
    blobs = {path: _added(objects, "blob", entry.content) for path, entry in files.items()}
    tree: dict[bytes, Any] = {}
    for path, entry in files.items():
        *folders, last = path.encode(errors="surrogateescape").split(b"/")
        place: Any = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = (_mode(entry), blobs[path])
    root = _tree(objects, tree)
    text = f"tree {root.hex()}\nauthor {AUTHOR}\ncommitter {AUTHOR}\n\nThe state at hand\n"
    commit = _added(objects, "commit", text.encode())
    pack, index = _packed(objects)
    name = f"objects/pack/pack-{pack[-20:].hex()}"
    made = {
        "HEAD": f"ref: {BRANCH}\n".encode(),
        "config": (CONFIG + USER).encode(),
        "index": _index(files, blobs),
        f"{name}.idx": index,
        f"{name}.pack": pack,
        BRANCH: f"{commit.hex()}\n".encode(),
    }
    return {f".git/{path}": Entry(content=content) for path, content in made.items()}


def _added(objects: dict[bytes, tuple[str, bytes]], kind: str, content: bytes) -> bytes:
    name = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content).digest()
    objects[name] = (kind, content)
    return name


def _mode(entry: Entry) -> int:
    if entry.kind == "link":
        return 0o120000
    return 0o100755 if entry.mode & 0o100 else 0o100644


def _tree(objects: dict[bytes, tuple[str, bytes]], tree: Mapping[bytes, Any]) -> bytes:
    """A folder as an object; git sorts folders as if their names ended with a slash."""
    rows = []
    for name, found in tree.items():
        if isinstance(found, dict):
            rows.append((name + b"/", b"40000 %s\0" % name + _tree(objects, found)))
        else:
            rows.append((name, b"%o %s\0" % (found[0], name) + found[1]))
    return _added(objects, "tree", b"".join(row for _, row in sorted(rows)))


def _packed(objects: Mapping[bytes, tuple[str, bytes]]) -> tuple[bytes, bytes]:
    """All objects as one pack, and the index of it, both of version 2."""
    pack = bytearray(b"PACK" + struct.pack(">II", 2, len(objects)))
    rows = []
    for name, (kind, content) in sorted(objects.items()):
        packed = _header(_KINDS[kind], len(content)) + zlib.compress(content, 1)
        rows.append((name, zlib.crc32(packed), len(pack)))
        pack += packed
    pack += hashlib.sha1(pack).digest()
    counts = [sum(row[0][0] <= first for row in rows) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">I256I", 2, *counts)
    index += b"".join(row[0] for row in rows)
    index += b"".join(struct.pack(">I", row[1]) for row in rows)
    index += b"".join(struct.pack(">I", row[2]) for row in rows)
    index += pack[-20:]
    return bytes(pack), index + hashlib.sha1(index).digest()


def _header(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 0xF, size >> 4
    header = bytearray()
    while size:
        header.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    header.append(first)
    return bytes(header)


def _index(files: Mapping[str, Entry], blobs: Mapping[str, bytes]) -> bytes:
    """The index, without times and sizes: git looks at the files themselves then."""
    rows = bytearray(b"DIRC" + struct.pack(">II", 2, len(files)))
    names = {path: path.encode(errors="surrogateescape") for path in files}
    for path in sorted(files, key=lambda path: names[path]):
        name, entry = names[path], files[path]
        row = struct.pack(
            ">10I20sH", *[0] * 6, _mode(entry), 0, 0, 0, blobs[path], min(len(name), 0xFFF)
        )
        rows += row + name + b"\0" * (8 - (len(row) + len(name)) % 8)
    return bytes(rows) + hashlib.sha1(rows).digest()


@lru_cache(maxsize=8)
def files_at(repository: Path, commit: str) -> Mapping[str, Entry]:
    """The files and links of a commit. Raises InfrastructureError if git fails or takes too long;
    whether the commit is there is asked by `check_commit`."""
    data = _git(repository, "archive", "--format=tar", commit)
    found: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            mode = member.mode & 0o777
            if member.issym():
                target = member.linkname.encode(errors="surrogateescape")
                found[member.name] = Entry("link", target, mode)
            elif member.isreg() and (file := archive.extractfile(member)):
                found[member.name] = Entry("file", file.read(), mode)
    return found


def check_commit(repository: Path, commit: str, where: str) -> str:
    """The commit's full name. Raises DataError, beginning with `where`, if it is not there."""
    if not repository.is_dir():
        raise DataError(f"{where}: there is no repository {repository}")
    try:
        found = _git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except InfrastructureError:
        raise DataError(f"{where}: {repository} has no commit {commit}") from None
    return found.decode().strip()


def _git(repository: Path, *words: str) -> bytes:
    # The option is git's way to read another user's repository without a change of settings.
    command = ["git", "-c", f"safe.directory={repository.resolve()}", "-C", str(repository), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"git cannot be run: {error}") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise InfrastructureError(f"git {words[0]} in {repository}: {reason}")
    return done.stdout
