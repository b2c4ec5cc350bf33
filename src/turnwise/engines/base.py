"""The engine seam: token ids in, sampled token ids and their log-probabilities out.

An engine knows nothing of messages, tools or tasks. One request is one model turn.

Next: `engines/embedded.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from turnwise.config import TokenEngineConfig
from turnwise.tokens import Image, KeptTokens

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from turnwise.engines.places import ServerPlaces


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
    """Settings to sample one completion. Example: Sampling(max_tokens=64, stop=("</search>",),
    seed=5).

    Log-probabilities are those of the distribution that was sampled from: after temperature, and
    with top_k, top_p or min_p of the tokens that these leave, whose probabilities sum to 1.
    An engine that cannot honour an option raises ConfigError.
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
    """Change the logits before all else, in order. As those of transformers: from int64[1, n], the
    history so far, and float32[1, vocabulary] to such logits. Log-probabilities are of what comes
    out."""
    seed: int = 0
    """Seed of this request alone: the result does not depend on what is sampled beside it."""
    experts_from: int | None = None
    """The first place of the history from which on a mixture's experts are returned for each token
    that the model read; None: they are not recorded."""
    returns_kept: bool = False
    """Whether each sampled token is to come with those that top_k, top_p and min_p left, from an
    engine that knows them (`BuiltEngine.returns_kept`)."""


@dataclass(frozen=True)
class Completion:
    """A sampled completion. Example: Completion([5, 9], [-0.1, -2.0], StopReason.STOP_STRING,
    7)."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    stop_reason: StopReason
    version: int | Sequence[int]
    """Version of the weights that sampled these tokens; one for each if they changed in between."""
    experts: "np.ndarray | None" = None
    """int16[m, routers, k], the experts of each token from `Sampling.experts_from` on, the last
    sampled one left out, which the model has not read; None where none were asked for."""
    kept: KeptTokens | None = None
    """The tokens among which each one was drawn; None where they were not asked for, and where
    nothing was left out."""


@dataclass(frozen=True)
class EngineSetup:
    """The materials that a recipe's engine is built from."""

    config: TokenEngineConfig
    model: "PreTrainedModel"
    """Is sampled from, through its adapters if it has some."""
    tokenizer: "PreTrainedTokenizerBase"
    max_tokens: int
    """The most tokens of a trajectory."""
    folder: Path | None = None
    """Folder for an engine's own files; None: a temporary one."""
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
    """Whether it samples from the tensors of `EngineSetup.model` themselves, so that a model that
    learns at the same time has to be copied."""
    returns_kept: ClassVar[bool]
    """Whether its completions have the tokens that top_k, top_p and min_p left, where they are
    asked for (`Sampling.returns_kept`): without them nothing can be learned from as it was
    sampled."""

    @classmethod
    def build(cls, setup: EngineSetup, **options: Any) -> "Engine":
        """Make the engine of a recipe; `options` are those of `setup.config`. Raises ConfigError
        for settings that it cannot honour."""
        ...


class Engine(Protocol):
    """The seam. A session is one trajectory: its KV cache lives from `open` to `close`."""

    @property
    def version(self) -> int:
        """The version of the weights that sample now."""
        ...

    def open(self, session: str) -> None:
        """Announce a trajectory. Between its requests, an engine in lockstep mode waits for it."""
        ...

    def close(self, session: str) -> None:
        """Release everything held for the session, a request under way included. Idempotent."""
        ...

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """Sample one turn. `prompt` is the whole history, `images` are what some of its tokens
        stand for, in order; what the session's cache already holds is not computed again."""
        ...

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace the weights (name -> tensor); later tokens carry the new version, those of turns
        that are under way too."""
        ...

    async def sleep(self) -> None:
        """Nothing is sampled before the next `load_weights`: an engine may give memory back."""
        ...

    async def stop(self) -> None:
        """End the engine's background work. Idempotent."""
        ...
