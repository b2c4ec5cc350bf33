"""The engine seam: token ids in, sampled token ids and their log-probabilities out.

An engine knows nothing of messages, tools or tasks. One request is one model turn.

Next: `engines/embedded.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from turnwise.config import EngineConfig
from turnwise.tokens import Image, KeptTokens

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class PlaceLostError(Exception):
    """The process of an object is gone; the text says why."""


class ActorHandle(Protocol):
    """An object in a process on some node, which runs one method at a time, in its main thread."""

    async def call(self, method: str, seconds: float, *arguments: Any) -> Any:
        """A method's result, or what it raises; PlaceLostError, and TimeoutError after so long."""

    def end(self) -> None:
        """End its process, wherever it is. Idempotent."""


@dataclass(frozen=True)
class ServerPlaces:
    """Places for the servers of an engine, one in each."""

    count: int
    hold: Callable[..., ActorHandle]
    """Makes an object in a process of a place and returns at once: `hold(0, Servant, folder)`."""
    start_seconds: float
    """Deadline of a process's start."""
    host: str = ""
    """The address at which a server is to listen; empty where it is its node's own."""


PATIENCE = 10
"""One turn may take so many times `rollout.max_seconds` before the engine counts as hung."""


class StopReason(StrEnum):
    """Why sampling ended."""

    STOP_STRING = "stop_string"
    END_OF_TEXT = "end_of_text"
    MAX_TOKENS = "max_tokens"
    CONTEXT = "context"
    """The model's context is full; the tokens sampled so far are returned."""


@dataclass(frozen=True)
class Sampling:
    """Settings to sample one completion. Example: Sampling(max_tokens=64, stop=("</search>",)).

    Log-probabilities are those of the distribution that was sampled from: after temperature, and
    over what top_k, top_p and min_p leave. ConfigError of an engine for what it cannot honour.
    """

    max_tokens: int
    temperature: float = 1.0
    """0 is greedy; then log-probabilities are those at temperature 1, and nothing is left out."""
    top_k: int = 0
    """Sample among that many most likely tokens; 0 is all."""
    top_p: float = 1.0
    """Then sample only among the fewest tokens that have this share of the probability."""
    min_p: float = 0.0
    """Then sample only among tokens at least this many times as likely as the most likely one."""
    stop: tuple[str, ...] = ()
    """Sampling ends with the token that completes one of these strings; that token is kept."""
    processors: tuple[Callable[[Any, Any], Any], ...] = ()
    """Change the logits before all else, in order, as those of transformers: from the history
    int64[1, n] and float32[1, vocabulary] to such logits."""
    seed: int = 0
    """Seed of this request alone: the result does not depend on what is sampled beside it."""
    experts_from: int | None = None
    """The first place of the history from which on each token's experts are returned, if any."""
    returns_kept: bool = False
    """Whether each token comes with what top_k, top_p and min_p left (if the engine has it)."""


@dataclass(frozen=True)
class Completion:
    """A sampled completion. Example: Completion([5, 9], [-0.1, -2.0], StopReason.MAX_TOKENS, 7)."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    stop_reason: StopReason
    version: int | Sequence[int]
    """Version of the weights that sampled these tokens; one for each if they changed in between."""
    experts: "np.ndarray | None" = None
    """int16[m, routers, k], each token's experts from `Sampling.experts_from` on, without the last
    sampled token, which the model has not read."""
    kept: KeptTokens | None = None
    """The tokens among which each one was drawn, if asked for and anything was left out."""


@dataclass(frozen=True)
class EngineSetup:
    """The materials that a recipe's engine is built from."""

    config: EngineConfig
    model: "PreTrainedModel"
    """Is sampled from, through its adapters if it has some."""
    tokenizer: "PreTrainedTokenizerBase"
    max_tokens: int
    """The most tokens of a trajectory."""
    folder: Path | None = None
    """For an engine's own files; None: a temporary one."""
    records_experts: bool = False
    """Whether turns will ask for the experts of their tokens (`Sampling.experts_from`)."""
    colocated: bool = False
    """Whether its GPUs are the learner's too, which has their memory after `Engine.sleep`."""
    places: "ServerPlaces | None" = None
    """Where servers are started; None: on this machine."""


class BuiltEngine(Protocol):
    """The class of an engine that a recipe can name; its instances are an `Engine`."""

    takes_images: ClassVar[bool]
    """Whether it samples after images."""
    shares_weights: ClassVar[bool]
    """Whether it samples from `EngineSetup.model` itself: one that learns meanwhile is copied."""
    returns_kept: ClassVar[bool]
    """Whether completions have what top_k, top_p and min_p left where `Sampling.returns_kept` asks:
    else nothing can be learned from as it was sampled."""

    @classmethod
    def build(cls, setup: EngineSetup, **options: Any) -> "Engine":
        """Make a recipe's engine; `options` are its config's. ConfigError for bad settings."""


class Engine(Protocol):
    """The seam. A session is one trajectory: its KV cache lives from `open` to `close`."""

    @property
    def version(self) -> int:
        """The version of the weights that sample now."""

    def open(self, session: str) -> None:
        """Announce a trajectory. Between its requests, an engine in lockstep mode waits for it."""

    def close(self, session: str) -> None:
        """Release everything held for the session, a request under way included. Idempotent."""

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """Sample one turn after `prompt`, the whole history, in which `images` stand for some
        tokens, in order; what the session's cache holds is not computed again."""

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace weights by name; later tokens, of turns under way too, carry the new version."""

    async def sleep(self) -> None:
        """Nothing is sampled before the next `load_weights`: an engine may give memory back."""

    async def stop(self) -> None: ...
