"""A small HTTP server that speaks as vLLM does: in this process for tests, or as a program.

What it samples is a function's business. It notes what was asked, and can hang, die, restart on its
port, be stale or refuse. Only the standard library is used.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Sample = Callable[[Json], tuple[list[int], list[float], str]]
"""Body of a request -> tokens, their log-probabilities, the reason to stop."""


class Refusal(Exception):
    """Answered with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FakeVllm:
    """Example: `async with FakeVllm(sample) as server: ... server.url`."""

    def __init__(
        self, sample: Sample, context: int = 512, mode: str = "processed_logprobs"
    ) -> None:
        self.sample, self.context, self.mode = sample, context, mode
        self.bodies: list[Json] = []
        """Of the requests for completions."""
        self.calls: list[str] = []
        """Paths of everything else but questions after health, in order."""
        self.loaded: list[str] = []
        """Folders that weights were read from."""
        self.on_load: Callable[[str], None] = lambda folder: None
        self.adapters: dict[str, str] | None = None
        """Folders of the adapters that are loaded, by name; None for a server that takes none."""
        self.label = "default"
        self.port = 0
        self.cancelled = 0
        """Requests that their sender gave up."""
        self.most = 0
        """Requests at once."""
        self._now = 0
        self.hold = asyncio.Event()
        """Requests are answered once it is set."""
        self.hold.set()
        self.well = True
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """As `kill -9`: nothing is answered any more, and what was loaded is forgotten."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        self._connections.clear()
        await asyncio.sleep(0)
        self.label = "default"
        self.adapters = None if self.adapters is None else {}
        self.on_load("")

    async def __aenter__(self) -> "FakeVllm":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = first.split()
                answering = asyncio.ensure_future(self._answer(method, path, content))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.cancelled += 1
                    answering.cancel()
                    return
                gone.cancel()
                status, text = answering.result()
                writer.write(
                    f"HTTP/1.1 {status} OK\r\ncontent-length: {len(text)}\r\n"
                    f"connection: close\r\n\r\n{text}".encode()
                )
                await writer.drain()
                return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, method: str, path: str, content: bytes) -> tuple[int, str]:
        body = json.loads(content) if content else {}
        try:
            answer = await self._handle(path, body)
        except Refusal as refusal:
            return refusal.status, json.dumps({"error": {"message": str(refusal)}})
        return 200, answer if isinstance(answer, str) else json.dumps(answer)

    async def _handle(self, path: str, body: Json) -> Json | str:
        if path == "/health":
            if not self.well:
                raise Refusal(503, "the engine is dead")
            return ""
        if path == "/v1/completions":
            return await self._complete(body)
        if path == "/weight_info":
            return {"weight_version": self.label}
        if path.startswith("/server_info"):
            settings = {"max_model_len": self.context, "logprobs_mode": self.mode}
            return {"vllm_config": {"model_config": settings}}
        if path == "/v1/models":
            return {"data": [{"id": "fake"}]}
        if path.endswith("load_lora_adapter"):
            return self._adapter(path, body)
        self.calls.append(path)
        if path == "/collective_rpc":
            folder = body["kwargs"]["weights_path"]
            self.loaded.append(folder)
            self.on_load(folder)
            return {"results": [None]}
        if path == "/update_weight_version":
            self.label = body["new_version"]
        return {"status": "done"}

    def _adapter(self, path: str, body: Json) -> str:
        """As vLLM does: a name that is there, or is not, is refused; the answer is no JSON."""
        if self.adapters is None:
            raise Refusal(404, "Not Found")
        if not body:
            raise Refusal(405, "Method Not Allowed")
        self.calls.append(path)
        name, unloads = body["lora_name"], path == "/v1/unload_lora_adapter"
        if (name in self.adapters) != unloads:
            raise Refusal(404 if unloads else 400, f"the adapter {name} is there, or is not")
        if unloads:
            del self.adapters[name]
        else:
            self.adapters[name] = body["lora_path"]
        return "Success"

    async def _complete(self, body: Json) -> Json:
        if self.adapters and body["model"] not in self.adapters:
            raise Refusal(404, f"the model {body['model']} does not exist")
        self.bodies.append(body)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await self.hold.wait()
            tokens, logprobs, reason = self.sample(body)
        finally:
            self._now -= 1
        choice = {
            "token_ids": tokens,
            "logprobs": {"token_logprobs": logprobs},
            "finish_reason": reason,
        }
        return {"choices": [choice]}


def constant(body: Json) -> tuple[list[int], list[float], str]:
    """The token 5, again and again."""
    count = body["max_tokens"]
    return [5] * count, [-1.0] * count, "length"


def main() -> None:
    """As a program: `--model --host --port` and whatever else vLLM takes. `FAKE_VLLM` may be
    `dies`; the arguments are noted in the file that `FAKE_VLLM_NOTES` names, if any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--port", type=int)
    given, _ = parser.parse_known_args()
    if notes := os.environ.get("FAKE_VLLM_NOTES"):
        with open(notes, "a") as file:
            file.write(json.dumps([os.getpid(), sys.argv[1:]]) + "\n")
    if os.environ.get("FAKE_VLLM") == "dies":
        raise SystemExit("RuntimeError: this model has a head size nobody can serve")

    async def serve() -> None:
        server = FakeVllm(constant)
        server.port = given.port
        await server.start()
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
