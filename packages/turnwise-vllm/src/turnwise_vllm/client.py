"""Requests to a vLLM server over HTTP, each with its deadline."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx2

from turnwise.errors import ConfigError, InfrastructureError, RunStoppedError

ALIVE_SECONDS = 10.0
"""A server that takes longer to say that it is well counts as not well."""
IDLE_SECONDS = 1.0
"""Connections are not used again after so long: servers close them after some five seconds, and a
question sent just then would be lost."""
GENERATE = "/inference/v1/generate"
DEVELOPMENT = "start the server with VLLM_SERVER_DEV_MODE=1, and vLLM 0.32 or later"
SCALE_OUT = "start the server with --enable-scale-out, and vLLM 0.32 or later"
ADAPTERS = "start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and the rank"

Json = dict[str, Any]


class ServerLostError(InfrastructureError):
    """The server did not answer, or its engine has died: what was asked may be asked again."""


class ServerRefusedError(InfrastructureError):
    """The server answered with an error, and will do so again."""


class ServerSlowError(InfrastructureError):
    """The server did not answer before the deadline."""


class Client:
    """One server. Example: `await Client("http://127.0.0.1:8000", 300).generate(body)`."""

    def __init__(self, url: str, seconds: float) -> None:
        """`seconds` is the deadline of an answer."""
        self.url, self._seconds = url, seconds
        self._alive = min(ALIVE_SECONDS, seconds)
        # Servers are this machine's, or of a private network: no proxy of the environment is asked.
        self._http = httpx2.AsyncClient(
            base_url=url, limits=httpx2.Limits(keepalive_expiry=IDLE_SECONDS), trust_env=False
        )

    async def well(self) -> bool:
        """Whether the server and its engine work. Asked again on a connection that was closed:
        after an error of its own a server closes the one that it answered on."""
        with suppress(httpx2.TransportError, ServerLostError):
            try:
                answer = await self._health()
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                answer = await self._health()
            return answer.status_code == 200
        return False

    async def _health(self) -> httpx2.Response:
        self._check_open()
        return await self._http.get("/health", timeout=self._alive)

    def _check_open(self) -> None:
        """Raise ServerLostError after `close`: one task brings a server up again while another one
        still asks it."""
        if self._http.is_closed:
            raise ServerLostError(f"vLLM at {self.url} is gone: it is brought up again")

    async def generate(self, body: Json) -> Json:
        """The answer to a request for tokens, as JSON."""
        return await self._ask("POST", GENERATE, body)

    async def pause(self, keep: bool) -> None:
        """Begin nothing new, and drop the cache; returns when what is under way has ended, or with
        `keep` is held, to go on with after the pause."""
        mode = "keep" if keep else "wait"
        await self._ask("POST", f"/pause?mode={mode}&clear_cache=true")

    async def give_up(self) -> None:
        """End a pause and what it has held up, so that the server serves again; it resumes even
        where it ends nothing."""
        try:
            await self._ask("POST", "/pause?mode=abort", seconds=self._alive)
        finally:
            await self._ask("POST", "/resume", seconds=self._alive)

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._ask("POST", "/resume")

    async def reload(self, folder: str, seconds: float) -> None:
        """Read the weights in a folder, which the server must see by the same name."""
        arguments = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._ask("POST", "/collective_rpc", arguments, seconds)

    async def workers(self) -> int:
        """The number of processes that have the server's weights, each on a GPU."""
        answer = await self._ask("GET", "/get_world_size", seconds=self._alive)
        return int(answer["world_size"])

    async def join_transfer(self, info: Json, seconds: float) -> None:
        """Connect to a process that sends weights; returns when it is connected too."""
        await self._ask("POST", "/init_weight_transfer_engine", {"init_info": info}, seconds)

    async def leave_transfer(self) -> None:
        """End that connection."""
        await self._ask("POST", "/shutdown_weight_transfer_engine", seconds=self._alive)

    async def start_update(self, seconds: float) -> None:
        """Begin to replace the weights."""
        await self._ask("POST", "/start_weight_update", seconds=seconds)

    async def update_weights(self, info: Json, seconds: float) -> None:
        """Receive some weights; returns when they are there."""
        await self._ask("POST", "/update_weights", {"update_info": info}, seconds)

    async def finish_update(self, seconds: float | None) -> None:
        """End the replacement; None is the deadline of a server that may be stuck."""
        await self._ask("POST", "/finish_weight_update", seconds=seconds or self._alive)

    async def load_adapters(self, name: str, folder: str, seconds: float) -> None:
        """Read the adapters in a folder; requests for the model `name` are sampled with them."""
        body = {"lora_name": name, "lora_path": folder}
        await self._send("POST", "/v1/load_lora_adapter", body, seconds)

    async def unload_adapters(self, name: str) -> None:
        """Forget the adapters of that name."""
        await self._send("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def sleep(self) -> None:
        """Give the memory of weights and cache back; they are lost."""
        await self._ask("POST", "/sleep?level=2")

    async def wake(self, part: str) -> None:
        """Take the memory of `weights` or `kv_cache` again."""
        await self._ask("POST", f"/wake_up?tags={part}")

    async def set_label(self, label: str) -> None:
        """Name the weights that the server has now."""
        await self._ask("POST", "/update_weight_version", {"new_version": label})

    async def label(self) -> str:
        """The name given last; another one if the server has been started again since."""
        return str(
            (await self._ask("GET", "/weight_info", seconds=self._alive)).get("weight_version")
        )

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._http.aclose()

    async def _ask(
        self, method: str, path: str, body: Json | None = None, seconds: float | None = None
    ) -> Json:
        """The JSON of an answer; raises as `_send` does."""
        return _json(await self._send(method, path, body, seconds), self.url)

    async def _send(
        self, method: str, path: str, body: Json | None = None, seconds: float | None = None
    ) -> httpx2.Response:
        """Raises ServerLostError, ServerRefusedError, or ServerSlowError at the deadline."""
        self._check_open()
        timeout = httpx2.Timeout(seconds or self._seconds, connect=ALIVE_SECONDS)
        try:
            answer = await self._http.request(method, path, json=body, timeout=timeout)
        except httpx2.ReadTimeout:
            raise ServerSlowError(
                f"vLLM at {self.url} did not answer {path} within {timeout.read:g} s"
            ) from None
        except httpx2.TransportError as error:
            kind = str(error) or type(error).__name__
            raise ServerLostError(f"vLLM at {self.url} is gone: {kind}") from error
        if answer.status_code == 200:
            return answer
        told = f"vLLM at {self.url} refuses {path}: {_message(answer)}"
        # A server whose engine has died answers each request with 500.
        if answer.status_code >= 500 and not await self.well():
            raise ServerLostError(told)
        raise ServerRefusedError(told)


def look_at(url: str, transport: str) -> Json:
    """The configuration of a server that runs. Raises ConfigError for one that cannot be used, or
    that takes no weights by the transport."""
    try:
        with httpx2.Client(base_url=url, timeout=ALIVE_SECONDS, trust_env=False) as http:
            answers = [
                http.get(path) for path in ("/server_info?config_format=json", "/weight_info")
            ]
            models = http.get("/v1/models")
            asked = http.post(GENERATE, json={})  # refused as malformed, where it is there
            loading = http.get("/v1/load_lora_adapter")
    except (httpx2.TransportError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ConfigError(f"engine.servers.urls: no server answers at {url}: {error}") from None
    if any(answer.status_code == 404 for answer in answers):
        raise ConfigError(f"engine.servers.urls: {url} does not take weights: {DEVELOPMENT}")
    if models.status_code == 401:
        raise ConfigError(f"engine.servers.urls: {url} asks for a key: start it without --api-key")
    if any(answer.status_code != 200 for answer in (*answers, models)):
        raise ConfigError(f"engine.servers.urls: {url} does not answer as a vLLM server does")
    if asked.status_code in (403, 404):
        raise ConfigError(f"engine.servers.urls: {url} does not offer {GENERATE}: {SCALE_OUT}")
    # A route that is there refuses GET with 405.
    if transport == "adapters" and loading.status_code == 404:
        raise ConfigError(f"engine.servers.urls: {url} takes no adapters: {ADAPTERS}")
    try:
        whole: Json = answers[0].json()
        settings: Json = whole["vllm_config"]["model_config"]
        _check_transfer(url, transport, whole)
        return settings | {"name": models.json()["data"][0]["id"]}
    except (ValueError, LookupError, TypeError):
        raise ConfigError(
            f"engine.servers.urls: {url} does not answer as a vLLM server does"
        ) from None


def _check_transfer(url: str, transport: str, whole: Json) -> None:
    """Raise ConfigError for a server without the weight transfer that the transport is."""
    if transport not in ("nccl", "ipc"):
        return
    has = whole["vllm_config"].get("weight_transfer_config") or {}
    if has.get("backend") != transport:
        asked = f'--weight-transfer-config \'{{"backend": "{transport}"}}\''
        raise ConfigError(
            f"engine.servers.urls: {url} takes no weights by {transport}: start the server with "
            f"{asked}"
        )
    if transport == "ipc" and not whole["vllm_env"].get("VLLM_ALLOW_INSECURE_SERIALIZATION"):
        raise ConfigError(
            f"engine.servers.urls: {url} opens no shared memory of another process: start the "
            "server with VLLM_ALLOW_INSECURE_SERIALIZATION=1"
        )


def _json(answer: httpx2.Response, url: str) -> Json:
    try:
        content = answer.json() if answer.content else {}
    except ValueError:
        content = None
    if not isinstance(content, Mapping):
        raise ServerRefusedError(f"vLLM at {url} answered with something else than a JSON object")
    return dict(content)


def _message(answer: httpx2.Response) -> str:
    """The reason that the server gives, in one line."""
    try:
        text = str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        text = answer.text
    return f"{answer.status_code} {' '.join(text.split())[:300]}"


def not_taken(error: InfrastructureError) -> RunStoppedError:
    """The error for weights that a server refuses, or does not take in time."""
    shape = "; is the server's model of the recipe's shape?"
    asked = shape if isinstance(error, ServerRefusedError) else ":"
    return RunStoppedError(f"the weights were not taken{asked} {error}")
