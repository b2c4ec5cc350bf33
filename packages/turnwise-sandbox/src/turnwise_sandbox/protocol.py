"""Messages between the processes of the sandbox: a length, then JSON; with files as base64.

Standard library only. Both ends are trusted: what code in a sandbox writes goes another way.
"""

import binascii
import json
import os
import struct
from collections.abc import Mapping

TYPE_CHECKING = False  # typing, socket and base64 take longer to load than all that is needed here
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]
else:
    Message = dict
_LENGTH = struct.Struct(">I")


def encode(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


def send(connection: int, message: Message) -> None:
    write(connection, encode(message))


def write(descriptor: int, data: bytes) -> None:
    """Write all of it, waiting where need be."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def receive(connection: int) -> Message | None:
    """Wait for one message on a descriptor; None when the other end is gone."""
    header = exactly(connection, _LENGTH.size)
    body = header and exactly(connection, _LENGTH.unpack(header)[0])
    return json.loads(body) if body else None


def exactly(connection: int, count: int) -> bytes:
    """So many bytes; none if the other end closes before."""
    parts: list[bytes] = []
    while count:
        part = os.read(connection, min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def pack_files(files: Mapping[str, bytes]) -> dict[str, str]:
    return {
        path: binascii.b2a_base64(content, newline=False).decode()
        for path, content in files.items()
    }


def unpack_files(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: binascii.a2b_base64(content) for path, content in files.items()}
