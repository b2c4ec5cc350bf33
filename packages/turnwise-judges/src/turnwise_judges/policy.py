"""The policy, for a judge that asks it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.engines.base import Engine

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Policy:
    """The policy's engine, its tokenizer, and the name of its present weights."""

    engine: Engine
    tokenizer: "PreTrainedTokenizerBase"
    weights: Callable[[], str]
    max_tokens: int
    """Tokens of a trajectory, at most."""
    date: str = ""
    """The run's, for chat templates that write today's."""
