"""New weights on their way to samplers: raw bytes, in pieces, of what training changes.

The tensors are read where they are and written to each connection: nothing is pickled but names.
Not here: when weights change (`engine.py`), and whether they arrived (`turnwise.engines.parity`).
"""

import asyncio
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from turnwise.cluster.frames import send
from turnwise.cluster.samplers.frames import Piece

PIECE_BYTES = 4 * 2**20
"""Bytes after which other messages have their turn."""


async def send_weights(writer: asyncio.StreamWriter, weights: Mapping[str, Tensor]) -> None:
    """Send weights that lie in main memory; waits where the other side is slower. Raises OSError
    when that is gone."""
    for name, weight in weights.items():
        data = _bytes_of(weight.detach().contiguous())
        dtype, shape = str(weight.dtype).removeprefix("torch."), tuple(weight.shape)
        for start in range(0, len(data), PIECE_BYTES):
            part = data[start : start + PIECE_BYTES]
            if writer.is_closing():  # closed meanwhile; asyncio would fail on what it no longer has
                raise ConnectionResetError("its connection was closed")
            send(writer, Piece(name, dtype, shape, start, len(part)))
            writer.write(part.data)
            await writer.drain()


class Arriving:
    """The weights that have arrived so far. Example: `arriving.put(piece, data)`."""

    def __init__(self) -> None:
        self._weights: dict[str, Tensor] = {}

    def put(self, piece: Piece, data: bytes) -> None:
        """Keep a piece."""
        if piece.name not in self._weights:
            self._weights[piece.name] = torch.empty(piece.shape, dtype=getattr(torch, piece.dtype))
        whole = _bytes_of(self._weights[piece.name])
        whole[piece.start : piece.start + piece.size] = np.frombuffer(data, np.uint8)

    def take(self) -> dict[str, Tensor]:
        """All of them, which are forgotten here."""
        weights, self._weights = self._weights, {}
        return weights


def _bytes_of(weight: Tensor) -> np.ndarray:
    """uint8[bytes] in the memory of a contiguous tensor."""
    found: np.ndarray = weight.reshape(-1).view(torch.uint8).numpy()
    return found
