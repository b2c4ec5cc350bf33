"""Messages between the processes of the sandbox: a length, then JSON; with files as base64.

Standard library only. Both ends are trusted: what code in a sandbox writes goes another way.
"""

import base64
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]
_LENGTH = struct.Struct(">I")


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as bytes."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


def receive(connection: socket.socket) -> Message | None:
    """Wait for one message; None when the other end is gone."""
    header = _exactly(connection, _LENGTH.size)
    body = header and _exactly(connection, _LENGTH.unpack(header)[0])
    return json.loads(body) if body else None


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def pack_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files as text."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


def unpack_files(files: Mapping[str, str]) -> dict[str, bytes]:
    """Files from text."""
    return {path: base64.b64decode(content) for path, content in files.items()}
