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
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.errors import ConfigError
from turnwise.scaffolds.text import (
    UNCLOSED,
    TextScaffold,
    contents,
    read_arguments,
    single_argument,
)
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult

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

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
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
        self._parallel = parallel_calls
        if parallel_calls and not self._end:
            raise ConfigError("scaffold.options.parallel_calls: the tokenizer has no eos_token")
        escaped = map(re.escape, self._names)
        self._tags = [re.compile(f"<({name})>(.*?)</{name}>", re.DOTALL) for name in escaped]
        closing = tuple(f"</{name}>" for name in self._names)
        self.stop: tuple[str, ...] = closing[-1:] if parallel_calls else closing
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

    def parse(self, tokens: Sequence[int]) -> Action:
        """Read one model turn: exactly one complete tag beside the thoughts, or several of tools
        where parallel calls are allowed; else an error."""
        text = self._text(tokens)
        thought = " ".join(part.strip() for part in _THOUGHT.findall(text))
        said = _THOUGHT.sub("", text)
        if "<information>" in said or "</information>" in said:
            return self._malformed(text, thought, "only the environment writes <information>")
        if "<think>" in said:
            return self._malformed(text, thought, UNCLOSED)
        found = [match for tag in self._tags for match in tag.finditer(said)]
        problem = self._problem(found, said)
        if problem:
            return self._malformed(text, thought, problem)
        if found[0][1] == "answer":
            return Action(text, thought, answer=found[0][2].strip())
        calls = []
        for name, content in (match.groups() for match in sorted(found, key=re.Match.start)):
            try:
                calls.append(ToolCall(name, self._arguments(self._tools[name], content.strip())))
            except ValueError as error:
                return self._malformed(text, thought, f"<{name}> {error}")
        return Action(text, thought, calls=tuple(calls))

    def render(self, action: Action) -> list[int]:
        """Tokens of an action, as `parse` reads them; one with `error` is its text and an end."""
        if action.error is not None:
            return self._as_it_stands(action.text)
        if action.answer is not None:
            said = f"<answer> {action.answer}</answer>"
        elif self._parallel:
            said = f"{''.join(map(self._written, action.calls))}{self._end}"
        else:
            (call,) = action.calls
            said = self._written(call)
        return self._with_thought(action.thought, f"<think> {action.thought}</think>", said)

    def _written(self, call: ToolCall) -> str:
        single = single_argument(self._tools[call.name])
        content = call.arguments[single] if single else json.dumps(dict(call.arguments))
        return f"<{call.name}> {content}</{call.name}>"

    def _problem(self, found: Sequence[re.Match[str]], said: str) -> str:
        """The fault of the tags, or nothing."""
        if not found:
            return "there is no complete action"
        together = self._parallel and all(match[1] != "answer" for match in found)
        if len(found) > 1 and not together:
            return "there are several actions"
        empty = next((match[1] for match in found if not match[2].strip()), None)
        if empty:
            return f"<{empty}> is empty"
        opened = sum(said.count(f"<{name}>") for name in self._names)
        if self._parallel and opened > len(found):
            return "a tag is not closed"
        spans = sorted(match.span() for match in found)
        if any(end > start for (_, end), (start, _) in pairwise(spans)):
            return "a tag stands inside another"
        return ""

    def _arguments(self, tool: Tool, content: str) -> Mapping[str, Any]:
        single = single_argument(tool)
        return {single: content} if single else read_arguments(tool, content)

    def _malformed(self, text: str, thought: str, problem: str) -> Action:
        forms = " or ".join(f"<{name}>…</{name}>" for name in self._names)
        return Action(text, thought, error=f"Malformed: {problem}. End your turn with {forms}.")

    def _described(self) -> str:
        return " ".join(self._describe(tool) for tool in self._tools.values())

    def _describe(self, tool: Tool) -> str:
        single = single_argument(tool)
        inside = single or json.dumps(tool.schema["parameters"]["properties"])
        return f"To use {tool.name}, write <{tool.name}>{inside}</{tool.name}>: {tool.description}"
