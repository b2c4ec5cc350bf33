"""A `.git` folder with one commit of the files that there are, made by dulwich; and files of a
commit of a user's repository, read by git.

There is no history in the folder: no earlier and no later commit, no branch but one, no log. It is
the same for the same files, byte by byte. Not here: what git does with it.
"""

import io
import subprocess
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from dulwich.index import IndexEntry, commit_tree, write_index_dict
from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.object_store import MemoryObjectStore
from dulwich.objects import Blob, Commit
from dulwich.pack import SHA1Writer, write_pack_index_v2, write_pack_objects

from turnwise.errors import DataError, InfrastructureError
from turnwise_sandbox.tools.workspace import Entry

AUTHOR = b"turnwise <turnwise@localhost> 946684800 +0000"
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
USER = "[user]\n\tname = agent\n\temail = agent@localhost\n"
BRANCH = "refs/heads/main"
SECONDS = 60.0
"""The most seconds that a call of git may take."""


def git_folder(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries below `.git` of a repository with one commit of these files and links."""
    store, index = MemoryObjectStore(), dict[bytes, IndexEntry]()
    for path, entry in entries.items():
        if entry.kind != "folder":
            blob = Blob.from_string(entry.content)
            store.add_object(blob)
            # Times and sizes are 0: git looks at the files themselves then.
            row = IndexEntry(0, 0, 0, 0, _mode(entry), 0, 0, 0, blob.id)
            index[path.encode(errors="surrogateescape")] = row
    tree = commit_tree(store, [(name, row.sha, row.mode) for name, row in index.items()])
    commit = Commit.from_string(
        b"tree %s\nauthor %s\ncommitter %s\n\nThe state at hand\n" % (tree, AUTHOR, AUTHOR)
    )
    store.add_object(commit)
    name, pack, pack_index = _packed(store)
    made = {
        "HEAD": b"ref: %s\n" % BRANCH.encode(),
        "config": (CONFIG + USER).encode(),
        "index": _written(index),
        f"objects/pack/pack-{name}.idx": pack_index,
        f"objects/pack/pack-{name}.pack": pack,
        BRANCH: commit.id + b"\n",
    }
    return {f".git/{path}": Entry(content=content) for path, content in made.items()}


def _mode(entry: Entry) -> int:
    if entry.kind == "link":
        return 0o120000
    return 0o100755 if entry.mode & 0o100 else 0o100644


def _packed(store: MemoryObjectStore) -> tuple[str, bytes, bytes]:
    """All objects as one pack: its name, the pack, and the index of it."""
    pack, index = io.BytesIO(), io.BytesIO()
    # Sorted and without deltas: the same bytes for the same files, 0.1 ms for each of them.
    objects = [store[name] for name in sorted(store)]
    places, checksum = write_pack_objects(
        pack, objects, DEFAULT_OBJECT_FORMAT, deltify=False, compression_level=1
    )
    write_pack_index_v2(index, sorted((name, *place) for name, place in places.items()), checksum)
    return checksum.hex(), pack.getvalue(), index.getvalue()


def _written(index: Mapping[bytes, IndexEntry]) -> bytes:
    content = io.BytesIO()
    writer = SHA1Writer(content)
    write_index_dict(writer, index, version=2)
    writer.write_sha()
    return content.getvalue()


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
