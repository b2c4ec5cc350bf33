"""Settings of engines: what all have, and what each kind has of its own."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from turnwise.config.section import Choice, Section
from turnwise.conflicts import Claim, Need

LOCKSTEP = Claim(
    "engine.deterministic",
    denies={Need.FREE_SAMPLING: "samples in lockstep, so that runs repeat"},
    remedy="set engine.deterministic=false",
)
EXACT_PARITY = 0.001
"""Default of `engine.parity_bound` where everything is computed in float32: 2^13 units of its
rounding."""
ROUNDED_PARITY = 0.05
"""Default of `engine.parity_bound` on servers, and with bfloat16, where gaps reached 0.03."""


class EngineConfig(Section):
    """The settings that every engine has."""

    max_sequences: int = Field(64, ge=1)
    """Trajectories whose KV cache is held at once, at most; over all servers together."""
    max_concurrent_episodes: int = Field(0, ge=0)
    """Episodes under way at once; 0 is `max_sequences`. With more, others sample while slow tools
    keep many waiting; a waiting episode may lose its cache, which is then computed again."""
    parity_bound: float = Field(0.0, ge=0)
    """Largest mean distance of the engine's log-probabilities of sampled tokens from the model's
    own, in nats. A run does not begin beyond it (docs/reference/models.md); it stops when
    `policy/logprob_gap` is beyond it, or a server's gap after new weights. 0 is 0.001 where
    the embedded engine and the learner compute in float32, else 0.05, and before a run or on
    servers three times the rounding of the model's own pass where that is more."""


class EmbeddedEngineConfig(EngineConfig):
    """The engine in this process."""

    name: Literal["embedded"] = "embedded"
    """PyTorch in the process of the run."""
    deterministic: bool = True
    """Sample in lockstep, so that the same seed gives the same run; waits for the slowest tool."""
    kv_cache_tokens: int = Field(0, ge=0)
    """Tokens of all trajectories together whose keys and values are held: it bounds the cache's
    memory. A sequence without room waits, or is computed again. 0 is `max_sequences` times
    `rollout.max_tokens`."""

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the engine's `build`."""
        return {"kv_cache_tokens": self.kv_cache_tokens}

    def claims(self) -> Iterator[Claim]:
        yield _without_servers(self.name)
        if self.deterministic:
            yield LOCKSTEP


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
    def _a_device_for_each(self) -> "StartedServers":
        if self.devices and len(self.devices) != self.replicas:
            raise ValueError(
                f"engine.servers.devices has {len(self.devices)} entries for {self.replicas} "
                "servers: give one for each of engine.servers.replicas"
            )
        return self

    @model_validator(mode="after")
    def _divided_once(self) -> "StartedServers":
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
    `adapters` alone, under a new name for each version; from GPU to GPU by `nccl`, or by `ipc` to a
    server on the learner's own."""
    in_flight: bool = False
    """Turns go on while weights change: servers hold them, drop what is cached, and sample the rest
    with the new weights, so that a turn has tokens of several versions; not with `adapters`."""
    max_restarts: int = Field(3, ge=0)
    """Times that lost servers are brought up again over the whole run, at most."""
    start_seconds: float = Field(600.0, gt=0)
    """Deadline of a server's start, and of its reading new weights."""
    request_seconds: float = Field(300.0, gt=0)
    """Deadline of a turn; an episode whose turn takes longer is ungraded."""

    deterministic: ClassVar[bool] = False
    """A vLLM server computes other numbers, by rounding, in another batch."""
    options: ClassVar[dict[str, Any]] = {}

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


class OwnEngineConfig(EngineConfig):
    """An engine of your own: `path/to/file.py:Class`, `package.module:Class` or an entry point."""

    name: str
    """The class's place, or the entry point's name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its `build`."""
    deterministic: bool = True
    """Whether it is to give the same run for the same seed."""

    def claims(self) -> Iterator[Claim]:
        yield _without_servers(self.name)
        if self.deterministic:
            yield LOCKSTEP


class OpenAIEngineConfig(Section):
    """A model behind an endpoint of chat completions, for evaluations: OpenAI's, Anthropic's, or
    any server that is compatible. Its tokens are not known, so nothing is trained with it."""

    name: Literal["openai"]
    """Words in place of tokens, through function calling: docs/how-to/evaluation.md."""
    url: str
    """The endpoint up to `/v1`."""
    model: str
    """The model's name at the endpoint."""
    key_variable: str = ""
    """The environment variable that has the endpoint's key, if it needs one."""
    request: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, such as `max_completion_tokens`. `temperature` is
    evaluation.temperature unless it is here."""
    max_concurrent_episodes: int = Field(8, ge=1)
    """Episodes under way at once."""

    deterministic: ClassVar[bool] = False
    """Nothing of it is seeded."""

    def claims(self) -> Iterator[Claim]:
        yield _without_servers(self.name)
        words = {Need.TOKENS: "says words"}
        yield Claim("engine.name = 'openai'", denies=words, remedy="choose embedded or vllm")


def _without_servers(name: str) -> Claim:
    """The claim of an engine that has no servers to be started."""
    denies = {Need.SERVERS: "has none"}
    return Claim(f"engine.name = {name!r}", denies=denies, remedy="set engine=vllm")


TokenEngineConfig = EmbeddedEngineConfig | VllmEngineConfig | OwnEngineConfig
"""Settings of an engine that samples tokens, whose log-probabilities are known."""
AnyEngineConfig = Annotated[
    EmbeddedEngineConfig | VllmEngineConfig | OpenAIEngineConfig | OwnEngineConfig, Choice("name")
]
"""The engine that plays: a name from `turnwise list`, or your own."""
