"""The base of scaffolds in a model family's own chat format: several messages, one for each result,
and a text from outside in which the name of a token of the tokenizer's own is only text."""

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

from tokenizers import processors
from transformers import PreTrainedTokenizerBase

from turnwise.scaffolds.text import TextScaffold
from turnwise.tools.tool import Tool
from turnwise.types import Action, ToolCall

_APART = "\ue000"
"""A character that is joined with no other in a token."""


class ChatScaffold(TextScaffold):
    """Holds the tokenizer, the tools' schemas and the names of added tokens."""

    shows_images: ClassVar[bool] = False

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Tool],
        instructions: str,
        date: str = "",
    ) -> None:
        super().__init__(tokenizer, tools, instructions, date)
        self._specs: list[dict[str, Any]] = [
            {key: tool.schema[key] for key in ("name", "description", "parameters")}
            for tool in tools
        ]
        # A post-processor may take blanks off the places that it gives for tokens.
        self._placing = deepcopy(tokenizer)
        self._placing.backend_tokenizer.post_processor = processors.Sequence([])
        # Runs of blanks, which some vocabularies add, are words like others.
        names = {place: str(token) for place, token in tokenizer.added_tokens_decoder.items()}
        self._own = {place for place, name in names.items() if name.strip()}
        longest = sorted((names[place] for place in self._own), key=len, reverse=True)
        self._added = re.compile("|".join(map(re.escape, longest)) or r"(?!)")

    def _encode_foreign(self, text: str) -> list[int]:
        """Split inside the name of every token that was added to the vocabulary."""
        places = [match.start() + 1 for match in self._added.finditer(text)]
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        return [token for piece in pieces for token in self._encode_after(_APART, piece)]

    def _placed(self, text: str) -> list[tuple[int, int]]:
        """The tokens of a text, each with the place of its first letter."""
        encoded = self._placing(text, add_special_tokens=False, return_offsets_mapping=True)
        starts = (start for start, _ in encoded["offset_mapping"])
        return list(zip(encoded["input_ids"], starts, strict=True))

    def _encode_after(self, before: str, text: str) -> list[int]:
        """The tokens of a text as they are behind another one: some tokenizers begin a text with a
        blank. By itself where a token would be of both."""
        begun = max((match.start() for match in self._added.finditer(before)), default=0)
        tail = before[begun:]
        placed = self._placed(tail + text)
        own = [token for token, start in placed if start >= len(tail)]
        apart = [token for token, _ in self._placed(tail)]
        return own if [token for token, _ in placed] == [*apart, *own] else self._encode(text)

    def _described(self) -> str:
        return ""  # the template has a place for tools


def acted(text: str, thought: str, said: str, calls: Sequence[ToolCall]) -> Action:
    """The action of a turn: its calls, with what is said before them, else the answer."""
    if calls:
        return Action(text, " ".join(filter(None, (thought, said))), tuple(calls))
    if not said:
        return malformed(text, thought, "there is neither a tool call nor an answer")
    return Action(text, thought, answer=said)


def malformed(text: str, thought: str, problem: str) -> Action:
    """The action of a turn that cannot be read."""
    form = "End your turn with tool calls in your own format, or with an answer"
    return Action(text, thought, error=f"Malformed: {problem}. {form}.")
