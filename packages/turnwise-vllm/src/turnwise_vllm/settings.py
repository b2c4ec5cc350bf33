"""Settings of the engine `vllm`: `[engine]` with name = "vllm"."""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from turnwise.config.engine import EngineConfig
from turnwise.config.section import Choice, Section
from turnwise.conflicts import Claim, Need


class RunningServers(Section):
    """Servers that run already. They must see the run's folder by the same name."""

    urls: tuple[str, ...] = Field(min_length=1)
    """Their addresses: `["http://127.0.0.1:8000"]`."""

    def claims(self) -> Iterator[Claim]:
        running = {Need.STARTED_SERVERS: "names some that run already"}
        yield Claim("engine.servers.urls", denies=running)


class StartedServers(Section):
    """Servers that the run starts and ends."""

    python: str = ""
    """Interpreter of the environment that has vLLM; this one if empty."""
    replicas: int = Field(1, ge=1)
    """Servers to start on this machine, each with all of the model; `cluster.samplers` starts them
    on the nodes of a cluster."""
    gpus: int = Field(0, ge=0)
    """GPUs of each server, over which it divides the model (tensor parallelism). 0 is one where the
    learner is on a GPU, else none."""
    devices: tuple[str, ...] = ()
    """CUDA_VISIBLE_DEVICES of each server: `["0", "1"]`; the same if empty."""
    arguments: tuple[str, ...] = ()
    """Further command-line arguments of each server."""
    compute_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The type that servers compute in; `auto` is `model.dtype`."""

    def claims(self) -> Iterator[Claim]:
        if self.replicas > 1 or self.devices:
            key = "replicas" if self.replicas > 1 else "devices"
            yield Claim(f"engine.servers.{key}", (Need.SERVERS_HERE,))
        if self.gpus:
            yield Claim("engine.servers.gpus", (Need.OWN_GPUS,))

    @model_validator(mode="after")
    def _fits(self) -> "StartedServers":
        if self.devices and len(self.devices) != self.replicas:
            raise ValueError(
                f"engine.servers.devices has {len(self.devices)} entries for {self.replicas} "
                "servers: give one for each of engine.servers.replicas"
            )
        given = [one for one in self.arguments if re.match(r"-tp\b|--tensor[-_]parallel", one)]
        if given:
            raise ValueError(
                f"engine.servers.arguments has {given[0]}: set engine.servers.gpus, by which a "
                "cluster gives a server its GPUs too"
            )
        return self


Servers = Annotated[RunningServers | StartedServers, Choice("urls")]


class VllmEngineConfig(EngineConfig):
    """Servers of vLLM: docs/how-to/vllm.md."""

    name: Literal["vllm"]
    """Servers beside the process of the run."""
    servers: Servers = StartedServers()
    """Servers to start, or with `urls` servers that run."""
    transport: Literal["files", "adapters", "nccl", "ipc"] = "files"
    """How new weights reach the servers: `files` of the whole model; with `model.lora_rank` the
    `adapters` alone; from GPU to GPU by `nccl`, or by `ipc` to a server on the learner's own."""
    in_flight: bool = False
    """Turns go on while weights change, so that one has tokens of several versions; not with
    `adapters`."""
    max_restarts: int = Field(3, ge=0)
    """Times that lost servers are brought up again over the whole run, at most."""
    start_seconds: float = Field(600.0, gt=0)
    """Deadline of a server's start, and of its reading new weights."""
    request_seconds: float = Field(300.0, gt=0)
    """Deadline of a turn; an episode whose turn takes longer is ungraded."""

    @property
    def gpus_per_server(self) -> int:
        return self.servers.gpus if isinstance(self.servers, StartedServers) else 0

    @property
    def merges_adapters(self) -> bool:
        return self.transport != "adapters"

    has_servers: ClassVar[bool] = True

    def claims(self) -> Iterator[Claim]:
        order = {Need.MIN_P_LAST: "applies min_p first"}
        yield Claim("engine.name = 'vllm'", denies=order)
        if self.in_flight:
            under_way = (Need.TURNS_UNDER_WAY,)
            yield Claim("engine.in_flight", under_way, remedy="set engine.in_flight=false")
        transport = f"engine.transport = {self.transport!r}"
        if self.transport == "adapters":
            needs = (Need.ADAPTERS, Need.BASE_MODEL)
            kept = {Need.TURNS_UNDER_WAY: "lets a turn keep the adapters that it began with"}
            yield Claim(transport, needs, kept, "set engine.transport=files")
        if self.transport == "nccl":
            yield Claim(transport, (Need.OWN_GPUS,), remedy="set engine.transport=ipc")
        if self.transport == "ipc":
            yield Claim(transport, (Need.FIRST_GPU,), remedy="set engine.transport=files")
