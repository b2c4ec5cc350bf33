"""Settings of engines: what all have, and what each kind has of its own."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

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
    """The settings of every engine that samples tokens, whose log-probabilities are known."""

    name: str
    """The engine's name."""
    max_sequences: int = Field(64, ge=1)
    """Trajectories whose KV cache is held at once, at most; over all servers together."""
    max_concurrent_episodes: int = Field(0, ge=0)
    """Episodes under way at once; 0 is `max_sequences`. With more, others sample while slow tools
    keep many waiting."""
    parity_bound: float = Field(0.0, ge=0)
    """Largest mean distance of the engine's log-probabilities of sampled tokens from the model's
    own, in nats (docs/reference/models.md): beyond it a run does not begin, and stops by
    `policy/logprob_gap`, or a server's gap after new weights. 0 is 0.001 where the embedded engine
    and the learner compute in float32, else 0.05, and before a run or on servers three times the
    rounding of the model's own pass where that is more."""

    has_servers: ClassVar[bool] = False
    """Whether servers sample, to which new weights are sent."""

    @property
    def in_lockstep(self) -> bool:
        """Whether sampling waits for every episode, so that the same seed gives the same run."""
        return bool(getattr(self, "deterministic", False))

    @property
    def gpus_per_server(self) -> int:
        """GPUs of each server that the run starts; 0 where the engine does not say."""
        return 0

    @property
    def merges_adapters(self) -> bool:
        """Whether servers get adapters merged into the weights of the whole model."""
        return self.has_servers

    def build_options(self) -> dict[str, Any]:
        """The arguments of the engine's `build`."""
        return {}

    def claims(self) -> Iterator[Claim]:
        if not self.has_servers:
            yield _without_servers(self.name)
        if self.in_lockstep:
            yield LOCKSTEP


class EmbeddedEngineConfig(EngineConfig):
    """The engine in this process."""

    name: Literal["embedded"] = "embedded"
    """PyTorch in the process of the run."""
    deterministic: bool = True
    """Sample in lockstep, so that the same seed gives the same run; waits for the slowest tool."""
    kv_cache_tokens: int = Field(0, ge=0)
    """Tokens of all trajectories together whose keys and values are held. A sequence without room
    waits, or is computed again. 0 is `max_sequences` times `rollout.max_tokens`."""

    def build_options(self) -> dict[str, Any]:
        return {"kv_cache_tokens": self.kv_cache_tokens}


class OwnEngineConfig(EngineConfig):
    """An engine of your own: `path/to/file.py:Class`, `package.module:Class` or an entry point."""

    name: str
    """The class's place, or the entry point's name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its `build`."""
    deterministic: bool = True
    """Whether it is to give the same run for the same seed."""

    def build_options(self) -> dict[str, Any]:
        return self.options


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
    max_concurrent_episodes: int = Field(0, ge=0)
    """Episodes under way at once; 0 is 8."""

    def claims(self) -> Iterator[Claim]:
        yield _without_servers(self.name)
        words = {Need.TOKENS: "says words"}
        yield Claim("engine.name = 'openai'", denies=words, remedy="choose embedded or vllm")


def _without_servers(name: str) -> Claim:
    denies = {Need.SERVERS: "has none"}
    return Claim(f"engine.name = {name!r}", denies=denies, remedy="set engine=vllm")


AnyEngineConfig = Annotated[
    EmbeddedEngineConfig | OpenAIEngineConfig | OwnEngineConfig, Choice("name")
]
"""The engine that plays: a name from `turnwise list`, or your own."""
