"""Tag syntax, as in Search-R1: <think>…</think>, then <tool>…</tool> or <answer>…</answer>.

A tool's tag is its name. The tag's content is the argument of a tool that takes one string, and a
JSON object for any other. What comes back stands in <information>…</information>, inside the same
assistant turn, so that a trajectory is one growing sequence. With `parallel_calls` a turn may have
several tool tags, and goes on until the model ends it.

Source: Jin et al. 2025 (arXiv 2503.09516), section 3.2.

Next: `engines/base.py`.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from turnwise.errors import ConfigError
from turnwise.scaffolds.text import (
    UNCLOSED,
    TextScaffold,
    arguments_of,
    contents,
    single_argument,
    written_arguments,
)
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult

if TYPE_CHECKING:  # options are checked before the library is loaded
    from transformers import PreTrainedTokenizerBase

INSTRUCTIONS = (
    "Answer the question. Think inside <think> and </think> first. {tools} What it returns stands "
    "between <information> and </information>. You may use tools as often as you need. When you "
    "know the answer, give it inside <answer> and </answer>, without explanation.\n"
)
RESERVED = ("think", "information", "answer")
"""Tags that are no tool's."""
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class TagsScaffold(TextScaffold):
    """See the module."""

    _thought = "<think> {}</think>"

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        tools: Sequence[Tool],
        instructions: str = INSTRUCTIONS,
        parallel_calls: bool = False,
        date: str = "",
    ) -> None:
        """`instructions` precede the task; `{tools}` in them becomes the list of tools. Raises
        ConfigError for a tool whose tag has another meaning, and where turns could not end:
        parallel calls need an end-of-text token."""
        super().__init__(tokenizer, tools, instructions, date)
        taken = next((name for name in self._tools if name in RESERVED), None)
        if taken is not None:
            raise ConfigError(f"scaffold tags: a tool cannot be called {taken!r}: rename it")
        self._names = (*self._tools, "answer")
        forms = " or ".join(f"<{name}>…</{name}>" for name in self._names)
        self._form = f"End your turn with {forms}."
        self._parallel = parallel_calls
        if parallel_calls and not self._end:
            raise ConfigError("scaffold.options.parallel_calls: the tokenizer has no eos_token")
        escaped = map(re.escape, self._names)
        tags = [re.compile(f"<({name})>(.*?)</{name}>", re.DOTALL) for name in escaped]
        closing = tuple(f"</{name}>" for name in self._names)
        self._tags = tuple(zip(tags, closing, strict=True))
        self.stop: tuple[str, ...] = closing[-1:] if parallel_calls else closing  # last: </answer>
        self._opening = Segment(self._encode("\n<information>"), Source.TEMPLATE)
        self._closing = Segment(self._encode("</information>\n"), Source.TEMPLATE)

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
        words: Sequence[str] = (),
    ) -> list[Segment]:
        """An information block, or one for each of several results and of a user's words, the last
        one with the images; what stands in it cannot contain special tokens."""
        del written
        segments = []
        for text, source in contents(observation, results, words):
            content = Segment(self._encode_foreign(f" {text}"), source)
            segments += [self._opening, content, self._closing]
        return [*segments[:-1], *self._images(observation), *segments[-1:], *self._reopened()]

    def _parted(self, turn: str) -> tuple[str, str]:
        # Nothing matches behind the last closing tag: each opening would look for one to the end.
        thinking, closing, rest = turn.rpartition("</think>")
        thought = " ".join(part.strip() for part in _THOUGHT.findall(thinking + closing))
        return thought, _THOUGHT.sub("", thinking + closing) + rest

    def _read(self, said: str) -> tuple[tuple[ToolCall, ...], str | None]:
        """Exactly one complete tag beside thoughts, or several of tools with parallel calls."""
        if "<information>" in said or "</information>" in said:
            raise ValueError("only the environment writes <information>")
        if "<think>" in said:
            raise ValueError(UNCLOSED)
        found = [
            match
            for tag, closing in self._tags
            for match in tag.finditer(said, 0, said.rfind(closing) + len(closing))
        ]
        self._check(found, said)
        if found[0][1] == "answer":
            return (), found[0][2].strip()
        calls = [match.groups() for match in sorted(found, key=re.Match.start)]
        return tuple(self._call(name, content.strip()) for name, content in calls), None

    def _said(self, action: Action) -> str:
        if action.answer is not None:
            return f"<answer> {action.answer}</answer>"
        if self._parallel:
            return f"{''.join(map(self._written, action.calls))}{self._end}"
        if len(action.calls) != 1:
            raise ValueError("without scaffold.options.parallel_calls a turn has one call")
        return self._written(action.calls[0])

    def _written(self, call: ToolCall) -> str:
        return f"<{call.name}> {written_arguments(self._tools[call.name], call)}</{call.name}>"

    def _check(self, found: Sequence[re.Match[str]], said: str) -> None:
        if not found:
            raise ValueError("there is no complete action")
        together = self._parallel and all(match[1] != "answer" for match in found)
        if len(found) > 1 and not together:
            raise ValueError("there are several actions")
        empty = next((match[1] for match in found if not match[2].strip()), None)
        if empty:
            raise ValueError(f"<{empty}> is empty")
        opened = sum(said.count(f"<{name}>") for name in self._names)
        if self._parallel and opened > len(found):
            raise ValueError("a tag is not closed")
        spans = sorted(match.span() for match in found)
        if any(end > start for (_, end), (start, _) in pairwise(spans)):
            raise ValueError("a tag stands inside another")

    def _call(self, name: str, content: str) -> ToolCall:
        try:
            return ToolCall(name, arguments_of(self._tools[name], content))
        except ValueError as error:
            raise ValueError(f"<{name}> {error}") from None

    def _described(self) -> str:
        return " ".join(self._describe(tool) for tool in self._tools.values())

    def _describe(self, tool: Tool) -> str:
        single = single_argument(tool)
        inside = single or json.dumps(tool.schema["parameters"]["properties"])
        return f"To use {tool.name}, write <{tool.name}>{inside}</{tool.name}>: {tool.description}"
