"""The scaffold seam: the only place where messages become tokens, and where actions are parsed.

Tokens that the model sampled are never decoded and encoded again: a scaffold renders new messages
only, and what it renders is appended to what is there. One scaffold serves all episodes: it holds
the tokenizer and the tools, and nothing of an episode.
"""

from collections.abc import Sequence
from typing import Protocol

from turnwise.tokens import Segment
from turnwise.types import Action, Observation, ToolResult


class Scaffold(Protocol):
    """Messages to tokens, completions to actions."""

    stop: tuple[str, ...]
    """Strings that end a model turn."""

    def begin(self, prompt: Observation, system: str = "") -> list[Segment]:
        """The first tokens of an episode: instructions, the task, the start of the reply. `system`
        is what an agent of its own says of its part, before the task."""

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
        words: Sequence[str] = (),
    ) -> list[Segment]:
        """The tokens between two model turns, after the `written` ones, which the scaffold closes
        where the model left something open. `results` are what the observation is made of where it
        joins several calls': a scaffold with a message for each shows them one by one, in order.
        `words` are what a user says after it."""

    def parse(self, tokens: Sequence[int]) -> Action:
        """The action that the model meant. A malformed turn is an Action too, with `error` set."""

    def render(self, action: Action) -> list[int]:
        """The tokens with which a scripted policy would write this action (demonstrations)."""

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest beginning of `text` that takes at most `max_tokens` tokens."""
