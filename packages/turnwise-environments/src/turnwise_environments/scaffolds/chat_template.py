"""A tokenizer's own chat template, for any model that has one.

What the model wrote is never encoded again: after a turn only what is new is rendered, as what the
template writes behind a stand-in for the history. Before a run begins, prepared conversations are
rendered turn by turn and as a whole (`template_check.py`); a template that changes its history is
refused. Turns are read by the tokenizer's response template (`response_template.py`); without one,
tool calls in the format that the template writes (`tool_formats.py`). Where it has no place for
tools, they are described in words, and calls are JSON in <tool_call> tags, as Hermes and Qwen write
them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.errors import ConfigError
from turnwise.scaffolds.text import check_characters, contents
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult, encodable
from turnwise_environments.scaffolds.chat import ChatScaffold, acted, malformed
from turnwise_environments.scaffolds.chat_format import ChatFormat
from turnwise_environments.scaffolds.template_check import check
from turnwise_environments.scaffolds.template_messages import (
    HELLO,
    Piece,
    Said,
    said_before,
    said_of,
)
from turnwise_environments.scaffolds.tool_formats import Call

_NAME = re.compile(r"[\w.:-]{1,64}")


class ChatTemplateScaffold(ChatScaffold):
    """See the module."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Tool],
        instructions: str = "",
        template: Mapping[str, Any] | None = None,
        date: str = "",
        keep_history: bool = False,
        examples: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`instructions` are the system message, if any. `template` are switches of the template,
        such as {enable_thinking = false}. With `keep_history` a template is taken although it would
        change what stands in the history already (drop thoughts, move the list of tools): it stays
        as it was. `examples` are messages before the task, as in a file of conversations.

        Raises ConfigError for a tokenizer without a template, for a template that cannot show
        a conversation or, without `keep_history`, changes its history, and for an example that is
        no message.
        """
        super().__init__(tokenizer, tools, instructions, date)
        self._format = ChatFormat(tokenizer, self._specs, dict(template or {}), date)
        self.stop = self._format.stop
        self._ends = set(tokenizer.convert_tokens_to_ids(list(self.stop)))
        self.examples = said_before(examples)
        check(self, self._format, self._instructions, keep_history, self._encode, self._decode)

    def begin(self, prompt: Observation, system: str = "") -> list[Segment]:
        """The system message with the tools, the examples, the task, and the beginning of the
        model's turn."""
        said = "\n\n".join(filter(None, (self._instructions, encodable(system))))
        first = [Said("system", said)] if said else []
        task = Said("user", prompt.content, prompt.source)
        return self._segments("", self._format.renderer.pieces([*first, *self.examples, task]))

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
        words: Sequence[str] = (),
    ) -> list[Segment]:
        """The end of the model's turn where it did not write one, a message for each result, or one
        for anything else, and for each of a user's words, and the beginning of the next turn."""
        messages = [Said("user", *shown) for shown in contents(observation, results, words)]
        calls: list[Call] = []
        if observation.source == Source.TOOL:
            calls = self._attempts(written) or [
                Call(one.call.name, one.call.arguments) for one in results
            ]
            calls = list(map(self._plain, calls[: len(messages) - len(words)]))
        end = self._format.end_before(Said("assistant", calls=calls))
        try:
            pieces = self._after(end, calls, messages)
        except ConfigError:  # an id of the model's own that the template refuses
            pieces = self._after(end, [call._replace(id="") for call in calls], messages)
        segments = self._segments(end, pieces)
        ended = bool(written) and written[-1] in self._ends
        closing = end if calls else self._format.closing
        return segments if ended else [Segment(self._encode(closing), Source.TEMPLATE), *segments]

    def _after(self, end: str, calls: Sequence[Call], messages: Sequence[Said]) -> list[Piece]:
        """Render what follows a turn with calls: the first messages are their results."""
        results = [messages[place].result_of(call, place) for place, call in enumerate(calls)]
        return self._format.renderer.after(
            Said("assistant", calls=calls), end, [*results, *messages[len(calls) :]]
        )

    def parse(self, tokens: Sequence[int]) -> Action:
        """Read one model turn: calls, or an answer; else an error."""
        text = self._decode(tokens)
        try:
            thought, said, calls = self._turn(tokens)
            for call in calls:
                check_characters(call.arguments)
        except ValueError as error:
            return malformed(text, "", str(error))
        return acted(text, thought, said, [ToolCall(one.name, one.arguments) for one in calls])

    def render(self, action: Action) -> list[int]:
        """Tokens of an action, as `parse` reads them; one with `error` is its text and an end. A
        thought is left out where the template has no place for it. Raises ConfigError for calls
        that the template cannot write."""
        if action.error is not None:
            return [*self._encode(action.text), *self._encode(self.stop[0])]
        return self._encode_after(self._format.prompt, self._format.turn(said_of(action)))

    def _plain(self, call: Call) -> Call:
        """The call with a name and an id that hold nothing which a template, or its tokenizer,
        takes for more than a word."""
        plain = _NAME.fullmatch(call.name) and HELLO.text not in call.name
        name = call.name if plain else next(iter(self._tools), "tool")
        return Call(name, {}, call.id if _NAME.fullmatch(call.id) else "")

    def _attempts(self, written: Sequence[int]) -> list[Call]:
        """The calls of a turn, with the ids that the model gave them."""
        try:
            return self._turn(written)[2]
        except ValueError:
            return []

    def _turn(self, tokens: Sequence[int]) -> tuple[str, str, list[Call]]:
        place = len(tokens) - bool(tokens and tokens[-1] in self._ends)
        end = self._decode(tokens[place:])
        return self._format.read(self._format.opened + self._decode(tokens[:place]), end)

    def _segments(self, before: str, pieces: Sequence[Piece]) -> list[Segment]:
        """The tokens of rendered text behind `before`, of which each belongs to the piece in which
        it begins. One from outside that holds a token of the tokenizer's own is encoded anew, so
        that the token's name in it is only text."""
        text = before + "".join(piece.text for piece in pieces)
        placed = self._placed(text)
        segments, start = [], len(before)
        for piece in pieces:
            end = start + len(piece.text)
            held = [one for one in placed if start <= one[1] < end]
            tokens = [token for token, _ in held]
            if piece.outside and self._own & set(tokens):
                later = [place for _, place in placed if place >= end]
                tokens = self._encode_foreign(text[held[0][1] : min(later, default=len(text))])
            if tokens:
                segments.append(Segment(tokens, piece.source))
            start = end
        return segments
