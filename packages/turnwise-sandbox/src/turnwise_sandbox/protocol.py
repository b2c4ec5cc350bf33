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
    """One message as bytes."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


def send(connection: int, message: Message) -> None:
    """Send one message through a descriptor."""
    left = memoryview(encode(message))
    while left:
        left = left[os.write(connection, left) :]


def receive(connection: int) -> Message | None:
    """Wait for one message on a descriptor; None when the other end is gone."""
    header = _exactly(connection, _LENGTH.size)
    body = header and _exactly(connection, _LENGTH.unpack(header)[0])
    return json.loads(body) if body else None


def _exactly(connection: int, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = os.read(connection, min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def pack_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files as text."""
    return {
        path: binascii.b2a_base64(content, newline=False).decode()
        for path, content in files.items()
    }


def unpack_files(files: Mapping[str, str]) -> dict[str, bytes]:
    """Files from text."""
    return {path: binascii.a2b_base64(content) for path, content in files.items()}
