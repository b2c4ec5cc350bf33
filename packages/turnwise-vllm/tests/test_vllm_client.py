"""Whether a server is well: on a closed connection it is asked again, on silence it is not."""

import asyncio
import time

import pytest

from turnwise_vllm import client as vllm_client
from turnwise_vllm.client import Client, ServerLostError

WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("silent", [False, True])
def test_only_a_closed_connection_is_asked_again(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_client, "ALIVE_SECONDS", 0.5)
    asked: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        if silent:
            await reader.read()
        elif len(asked) > 1:
            writer.write(WELL)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def work() -> bool:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 5.0)
        well = await client.well()
        await client.close()
        await asyncio.gather(*(task for task in asked if task is not None))
        server.close()
        await server.wait_closed()
        return well

    start = time.monotonic()
    assert asyncio.run(work()) == (not silent)
    assert len(asked) == (1 if silent else 2)
    assert time.monotonic() - start < 5.0


async def test_a_server_that_is_brought_up_again_meanwhile_is_gone() -> None:
    """Its connections are closed while something waits for an answer, or is about to ask."""
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 60.0)
    waiting = asyncio.create_task(client.label())
    await asked.wait()
    await client.close()
    with pytest.raises(ServerLostError):
        await waiting
    assert not await client.well()
    with pytest.raises(ServerLostError, match="brought up again"):
        await client.resume()
    server.close()
    await server.wait_closed()
