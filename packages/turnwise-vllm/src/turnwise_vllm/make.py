"""The engine over vLLM as a recipe describes it: servers to start, or servers that run.

Whatever can be known before the run begins is refused here: an interpreter without vLLM, a server
that does not answer, or one that would sample something else than the recipe says.
"""

import json
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise import event_loop
from turnwise.config import ROUNDED_PARITY
from turnwise.engines.base import ServerPlaces
from turnwise.errors import ConfigError
from turnwise_vllm.client import look_at
from turnwise_vllm.engine import VllmEngine
from turnwise_vllm.nodes import Machines, Nodes
from turnwise_vllm.process import ThisMachine
from turnwise_vllm.replica import Replica
from turnwise_vllm.sending import IpcSender, NcclSender, Sender, Sent, Transport
from turnwise_vllm.settings import RunningServers, StartedServers, VllmEngineConfig
from turnwise_vllm.transports import Adapters, Files, server_arguments

NAME = "turnwise"
"""Name of the model on servers that turnwise starts."""


def make_vllm(
    config: VllmEngineConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    max_tokens: int,
    folder: Path | None = None,
    sender: Callable[[], Sender] | None = None,
    colocated: bool = False,
    machines: Machines | None = None,
) -> VllmEngine:
    """An engine whose servers hold trajectories of at most `max_tokens` tokens.

    `folder` is where weights and logs of servers are written; a temporary one if not given. With
    the transports `nccl` and `ipc`, `sender` makes this process's side of a connection; on the
    model's GPU if not given. For `colocated` see EngineSetup; servers are started on
    `machines`, on this one if not given. Raises ConfigError for what cannot work; starts nothing.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limit = min(max_tokens, positions or max_tokens)
    temporary = None
    if folder is None:
        folder = temporary = Path(tempfile.gettempdir()) / f"turnwise-vllm-{uuid.uuid4().hex}"
    servers = config.servers
    transport = _transport(config, model.device, folder, sender)
    if isinstance(servers, RunningServers):
        replicas = [_running(url, config, limit, transport) for url in servers.urls]
    else:
        machines = machines or ThisMachine(servers)
        given = (config, servers, model, limit, folder, transport)
        replicas = _started(*given, colocated, machines)
    bound = config.parity_bound or ROUNDED_PARITY
    parts = (replicas, config, limit, transport, temporary, bound, colocated)
    return VllmEngine(model, tokenizer, *parts)


def checked_nodes(places: ServerPlaces, config: VllmEngineConfig) -> Nodes | None:
    """The nodes of a cluster on which servers are started; None for servers that run. Raises
    ConfigError unless all of them have one vLLM."""
    if isinstance(config.servers, RunningServers):
        return None
    found = Nodes(places, config.servers)
    event_loop.run(found.check())
    return found


def returning_experts(config: VllmEngineConfig) -> VllmEngineConfig:
    """The settings of servers that return the experts of each token; those that run already are as
    they were started."""
    servers = config.servers
    if isinstance(servers, RunningServers):
        return config
    arguments = (*servers.arguments, "--enable-return-routed-experts")
    return config.model_copy(
        update={"servers": servers.model_copy(update={"arguments": arguments})}
    )


def _transport(
    config: VllmEngineConfig,
    device: torch.device,
    folder: Path,
    sender: Callable[[], Sender] | None,
) -> Transport:
    """The recipe's way of new weights to servers, from the model's device."""
    kind, seconds = config.transport, config.start_seconds
    if kind == "files":
        return Files(folder, seconds)
    if kind == "adapters":
        return Adapters(folder, seconds)
    if sender is None and device.type != "cuda":
        raise ConfigError(
            f"engine.transport={kind} sends weights from a GPU, and the model is on {device.type}: "
            "set engine.transport=files, or model.device=cuda"
        )
    own = partial(NcclSender if kind == "nccl" else IpcSender, device)
    return Sent(folder, seconds, sender or own)


def _running(url: str, config: VllmEngineConfig, limit: int, transport: Transport) -> Replica:
    server = url.rstrip("/").removesuffix("/v1")  # which clients of OpenAI's have at the end
    settings = look_at(server, config.transport)
    context, mode = settings.get("max_model_len", limit), settings.get("logprobs_mode")
    if context < limit:
        raise ConfigError(
            f"engine.servers.urls: {url} has a context of {context} tokens, and trajectories may "
            f"have {limit}: lower rollout.max_tokens, or start it with --max-model-len {limit}"
        )
    if mode != "processed_logprobs":
        raise ConfigError(
            f"engine.servers.urls: {url} reports log-probabilities before temperature and "
            "truncation: start it with --logprobs-mode processed_logprobs"
        )
    seconds = config.request_seconds, config.start_seconds
    return Replica(None, server, settings["name"], transport, *seconds)


def _started(
    config: VllmEngineConfig,
    servers: StartedServers,
    model: PreTrainedModel,
    limit: int,
    folder: Path,
    transport: Transport,
    colocated: bool,
    machines: Machines,
) -> list[Replica]:
    dtype = str(model.dtype).removeprefix("torch.")
    backend = json.dumps({"backend": config.transport})
    arguments = [
        *("--served-model-name", NAME),
        *("--dtype", dtype if servers.compute_dtype == "auto" else servers.compute_dtype),
        *("--max-model-len", str(limit)),
        *("--max-num-seqs", str(-(-config.max_sequences // machines.count))),  # rounded up
        *("--logprobs-mode", "processed_logprobs"),
        *("--generation-config", "vllm"),  # no sampling options but those of the request
        "--enable-scale-out",  # /inference/v1/generate
        "--disable-uvicorn-access-log",
        *(["--enable-sleep-mode"] if colocated else []),
        *(server_arguments(model) if config.transport == "adapters" else []),
        *(["--weight-transfer-config", backend] if config.transport in ("nccl", "ipc") else []),
        *(["--tensor-parallel-size", str(servers.gpus)] if servers.gpus > 1 else []),
        *servers.arguments,
    ]
    opened = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}  # handles to shared memory
    variables = opened if config.transport == "ipc" else {}
    logs = [folder / f"server-{number}.log" for number in range(machines.count)]
    seconds = config.request_seconds, config.start_seconds
    return [
        Replica(machines.server(number, arguments, variables, log), "", NAME, transport, *seconds)
        for number, log in enumerate(logs)
    ]
