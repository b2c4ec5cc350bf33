"""The program of a shell call: unpack a folder, run a command in it, pack the folder again.

Standard library only: the text of this file is itself the program (see tools/workspace.py). It runs
beside the command, which can change what is packed; the folder is the agent's anyway.
"""

import io
import os
import subprocess
import sys
import tarfile

PACKED = "workspace.by.turnwise.tar"
COMMAND = "command.by.turnwise"
FOLDER = "workspace"


def pack(folder: str) -> bytes:
    """Files, folders and links of a folder as a tar archive, the same for the same content: in
    order, without times and owners. What else is there (sockets, pipes) is left out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for root, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted([*folders, *names]):
                path = os.path.join(root, name)
                info = archive.gettarinfo(path, os.path.relpath(path, folder))
                if info is None:
                    continue
                info.mtime = info.uid = info.gid = 0
                info.uname = info.gname = ""
                if os.path.islink(path) or os.path.isdir(path):
                    archive.addfile(info)
                elif os.path.isfile(path):
                    info.type, info.linkname = tarfile.REGTYPE, ""  # hard links are copied
                    info.size = os.path.getsize(path)
                    with open(path, "rb") as file:
                        archive.addfile(info, file)
    return buffer.getvalue()


def run() -> int:
    """The command's exit status, as a shell has it."""
    with open(COMMAND) as file:
        command = file.read()
    os.mkdir(FOLDER)
    with tarfile.open(PACKED) as archive:
        # The host packed it; Python's filters refuse links that an agent may make for itself.
        archive.extraction_filter = lambda member, path: member
        archive.extractall(FOLDER)
    os.remove(PACKED)
    os.remove(COMMAND)
    done = subprocess.run(["sh", "-c", command], cwd=FOLDER, stdin=subprocess.DEVNULL, check=False)
    packed = pack(FOLDER)
    with open(PACKED, "wb") as result:
        result.write(packed)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def main() -> None:
    """Run, and end with the command's exit status."""
    sys.exit(run())
