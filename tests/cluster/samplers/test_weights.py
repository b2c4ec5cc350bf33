"""New weights on a connection that does not last."""

import asyncio

import pytest
import torch

from turnwise.cluster.samplers.weights import send_weights

MUCH = 16 * 2**20
"""Bytes that no socket takes at once."""


def test_a_connection_that_was_closed_with_bytes_on_their_way_is_an_error_of_it() -> None:
    async def played() -> None:
        closing, read = asyncio.Event(), asyncio.Event()

        async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await closing.wait()
            while await reader.read(MUCH):
                pass
            writer.close()
            await writer.wait_closed()
            read.set()

        async with asyncio.timeout(60):
            server = await asyncio.start_server(read_late, "127.0.0.1", 0)
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(bytes(MUCH))
            writer.close()
            closing.set()
            await writer.wait_closed()
            with pytest.raises(ConnectionResetError, match="was closed"):
                await send_weights(writer, {"weight": torch.zeros(3)})
            await read.wait()
            server.close()
            await server.wait_closed()

    asyncio.run(played())
