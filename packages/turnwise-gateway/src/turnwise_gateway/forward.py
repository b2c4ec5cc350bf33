"""Lets an agent in a sandbox without a network reach the gateway: its own loopback, forwarded.

Run as a program in the sandbox, `forward.py SOCKET COMMAND…`, it listens on a port of its
loopback, passes every connection on to the gateway's Unix socket, and runs the command, in whose
environment variables `PLACE` becomes the address of that port. Nothing else can be reached. Only
the standard library is used.
"""

import asyncio
import contextlib
import os
import sys

PLACE = "http://gateway.invalid"


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        try:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        finally:
            target.write_eof()  # the other way may go on


async def forward(socket: str, command: list[str]) -> int:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, asking = await asyncio.open_unix_connection(socket)
        except OSError:  # the gateway is gone, which the agent sees as it would without a sandbox
            writer.close()
            return
        ways = (reader, asking), (answers, writer)
        both = [asyncio.create_task(_pass_on(*way)) for way in ways]
        tasks.update(both)
        await asyncio.wait(both)
        tasks.difference_update(both)
        for end in (asking, writer):
            end.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    given = {name: value.replace(PLACE, address) for name, value in os.environ.items()}
    try:
        process = await asyncio.create_subprocess_exec(*command, env=given)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    code = await process.wait()
    return code if code >= 0 else 128 - code


def main() -> None:
    """Forward until the command ends, and end with its status."""
    sys.exit(asyncio.run(forward(sys.argv[1], sys.argv[2:])))


if __name__ == "__main__":
    main()
