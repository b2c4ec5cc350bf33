"""A small HTTP server that speaks as vLLM does: in this process for tests, or as a program.

What it samples is a function's business. It notes what was asked, can die and restart on its port,
and lies as it is told to (`Lies`). Only the standard library is used.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Sample = Callable[[Json], tuple[list[int], list[float], str]]
"""A request's sampling parameters with `prompt`, `pngs` and `model` -> tokens, their
log-probabilities, the reason to stop."""
GENERATE = "/inference/v1/generate"


@dataclass
class Lies:
    """What a server does wrong, by the path of the request or by what it says of its tokens."""

    hangs: str = ""
    """Path that is never answered."""
    fails: str = ""
    """Path that is answered with status 500."""
    halves: str = ""
    """Path of which half an answer comes, before the connection is closed."""
    keeps: bool = False
    """Weights stay what they were, whatever is loaded."""
    label: str | None = None
    """What /weight_info says, whatever label was set."""
    spans: tuple[tuple[str, int, int | None], ...] = ()
    """The `weight_versions` of each answer, where NEW and OLD stand for the last two labels, and
    None for the answer's end."""
    without: str = ""
    """A field that answers or their choices lack."""
    more: int = 0
    """Tokens that an answer has beyond its log-probabilities."""


class Refusal(Exception):
    """Answered with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FakeVllm:
    """Example: `async with FakeVllm(sample) as server: ... server.url`."""

    def __init__(self, sample: Sample) -> None:
        self.sample, self.context, self.mode = sample, 512, "processed_logprobs"
        self.lies = Lies()
        self.scale_out = True
        """Whether it offers to sample from token ids."""
        self.asks_for_key = False
        self.bodies: list[Json] = []
        """Of the requests for tokens: sampling parameters, with `prompt`, `pngs` and `model`."""
        self.calls: list[str] = []
        """Paths of everything else but questions after health, in order."""
        self.loaded: list[str] = []
        """Folders that weights were read from."""
        self.on_load: Callable[[str], None] = lambda folder: None
        self.read: Callable[[list[int], list[bytes]], list[int]] = lambda ids, pngs: ids
        """The prompt that it makes of ids and images."""
        self.adapters: dict[str, str] | None = None
        """Folders of the adapters that are loaded, by name; None for a server that takes none."""
        self.transfer = ""
        """The back end of its weight transfer, if it has one."""
        self.on_update: Callable[[Json], None] = lambda info: None
        """Receives weights; may block."""
        self.updating = False
        self.invitations: list[Json] = []
        self.label = self.earlier = "default"
        self.host, self.port = "127.0.0.1", 0
        self.cancelled = 0
        """Requests that their sender gave up."""
        self.most = 0
        """Requests at once."""
        self._now = 0
        self.hold = asyncio.Event()
        """Requests are answered once it is set."""
        self.before_hold = 0
        """Tokens of a turn that are sampled before it waits for that; probes of the parity check do
        not wait then."""
        self.hold.set()
        self.well = True
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """As `kill -9`: nothing is answered any more, and what was loaded is forgotten."""
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        self._connections.clear()
        await asyncio.sleep(0)
        self.label, self.updating = "default", False
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
                shown = text[: len(text) // 2] if self.lies.halves == _plain(path) else text
                writer.write(
                    f"HTTP/1.1 {status} OK\r\ncontent-length: {len(text)}\r\n"
                    f"connection: close\r\n\r\n{shown}".encode()
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
        if self.lies.hangs == _plain(path):
            await asyncio.Event().wait()
        if self.lies.fails == _plain(path):
            raise Refusal(500, "something is wrong")
        if path == "/health":
            if not self.well:
                raise Refusal(503, "the engine is dead")
            return ""
        if path == GENERATE:
            return await self._generate(body)
        if path == "/weight_info":
            return {"weight_version": self.label if self.lies.label is None else self.lies.label}
        if path.startswith("/server_info"):
            settings = {"max_model_len": self.context, "logprobs_mode": self.mode}
            config = {
                "model_config": settings,
                "weight_transfer_config": {"backend": self.transfer} if self.transfer else None,
            }
            return {"vllm_config": config, "vllm_env": {}}
        if self.asks_for_key and path.startswith("/v1"):
            raise Refusal(401, "Unauthorized")
        if path == "/v1/models":
            return {"data": [{"id": "fake"}]}
        if path.endswith("load_lora_adapter"):
            return self._adapter(path, body)
        self.calls.append(path)
        if path == "/collective_rpc":
            folder = body["kwargs"]["weights_path"]
            self.loaded.append(folder)
            if not self.lies.keeps:
                self.on_load(folder)
            return {"results": [None]}
        if path.endswith(("weight_transfer_engine", "weight_update", "_weights")):
            await self._transfer(path, body)
        if path == "/get_world_size":
            return {"world_size": 1}
        if path == "/update_weight_version" and body["new_version"] != self.label:
            self.earlier, self.label = self.label, body["new_version"]
        return {"status": "done"}

    async def _transfer(self, path: str, body: Json) -> None:
        """As vLLM's worker does: an update is begun once, and ended by an error within it."""
        if path == "/init_weight_transfer_engine":
            self.invitations.append(body["init_info"])
            await asyncio.to_thread(self.on_update, {})
        elif path == "/start_weight_update":
            if self.updating:
                raise Refusal(500, "start_weight_update called while an update is already active")
            self.updating = True
        elif path == "/update_weights":
            if not self.lies.keeps:
                await asyncio.to_thread(self.on_update, body["update_info"])
        elif path == "/finish_weight_update":
            if not self.updating:
                raise Refusal(500, "finish_weight_update called without a matching start")
            self.updating = False

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

    async def _generate(self, body: Json) -> Json:
        if not self.scale_out:
            raise Refusal(403, "Scale-out endpoints are disabled")
        if "token_ids" not in body:
            raise Refusal(400, "token_ids: Field required")
        if self.adapters and body["model"] not in self.adapters:
            raise Refusal(404, f"the model {body['model']} does not exist")
        parts = [part["url"].partition(",")[2] for part in body.get("content_parts", ())]
        pngs = [base64.b64decode(part) for part in parts]
        read = self.read(body["token_ids"], pngs)
        asked = {**body["sampling_params"], "prompt": read, "pngs": pngs, "model": body["model"]}
        self.bodies.append(asked)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            (tokens, logprobs, reason), begun = await self._turn(asked)
        finally:
            self._now -= 1
        names = {"NEW": self.label, "OLD": self.earlier}
        honest = (("OLD", 0, begun), ("NEW", begun, None)) if begun else (("NEW", 0, None),)
        spans = self.lies.spans or honest
        entries = zip(tokens, logprobs, strict=False)
        content = [{"token_id": token, "logprob": value} for token, value in entries]
        choice = {
            "token_ids": [*tokens, *[5] * self.lies.more],
            "logprobs": {"content": content},
            "weight_versions": [
                {"version": names.get(name, name), "start": start, "end": end or len(tokens)}
                for name, start, end in spans
            ],
            "finish_reason": reason,
        }
        choice.pop(self.lies.without, None)
        told = {"prompt_token_ids": read} if body.get("return_token_ids") else {}
        told.pop(self.lies.without, None)
        return {"choices": [choice], **told}

    async def _turn(self, asked: Json) -> tuple[tuple[list[int], list[float], str], int]:
        """What is sampled, and how many of its tokens before the weights changed."""
        if not self.before_hold:
            await self.hold.wait()
        if not self.before_hold or asked["ignore_eos"]:
            return self.sample(asked), 0
        label = self.label
        begun, before, _ = self.sample({**asked, "max_tokens": self.before_hold})
        await self.hold.wait()
        rest = {"prompt": asked["prompt"] + begun, "max_tokens": asked["max_tokens"] - len(begun)}
        tokens, logprobs, reason = self.sample(asked | rest)
        whole = [*begun, *tokens], [*before, *logprobs], reason
        return whole, len(begun) if self.label != label else 0


def _plain(path: str) -> str:
    """The path without its query."""
    return path.partition("?")[0]


def constant(body: Json) -> tuple[list[int], list[float], str]:
    """The token 5, again and again."""
    count = body["max_tokens"]
    return [5] * count, [-1.0] * count, "length"


def main() -> None:
    """As a program: `--model --host --port` and whatever else vLLM takes. `FAKE_VLLM` may be
    `dies`; the arguments are noted in the file that `FAKE_VLLM_NOTES` names, if any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given, _ = parser.parse_known_args()
    if notes := os.environ.get("FAKE_VLLM_NOTES"):
        with open(notes, "a") as file:
            file.write(json.dumps([os.getpid(), sys.argv[1:]]) + "\n")
    if os.environ.get("FAKE_VLLM") == "dies":
        raise SystemExit("RuntimeError: this model has a head size nobody can serve")

    async def serve() -> None:
        server = FakeVllm(constant)
        server.host, server.port = given.host, given.port
        await server.start()
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
