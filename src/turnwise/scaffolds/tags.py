"""Tag syntax, as in Search-R1: <think>…</think>, then <tool>…</tool> or <answer>…</answer>.

A tool's tag is its name. The tag's content is the argument of a tool that takes one string, and a
JSON object for any other. What comes back stands in <information>…</information>, inside the same
assistant turn, so that a trajectory is one growing sequence.

Source: Jin et al. 2025 (arXiv 2503.09516), section 3.2.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, Segment, Source, ToolCall

INSTRUCTIONS = (
    "Answer the question. Think inside <think> and </think> first. {tools} What it returns stands "
    "between <information> and </information>. You may use tools as often as you need. When you "
    "know the answer, give it inside <answer> and </answer>, without explanation.\n"
)
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class TagsScaffold:
    """See the module. Holds the tokenizer and the tools; nothing of an episode."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Tool],
        instructions: str = INSTRUCTIONS,
    ) -> None:
        """`instructions` precede the task; `{tools}` in them becomes the list of tools."""
        self._tokenizer = tokenizer
        # Whether special tokens are split is a setting of the tokenizer, not of a call, and tools
        # truncate their results in other threads: text from outside has a tokenizer of its own.
        self._foreign_tokenizer = deepcopy(tokenizer)
        self._tools = {tool.name: tool for tool in tools}
        described = " ".join(self._describe(tool) for tool in tools)
        self._instructions = instructions.replace("{tools}", described)
        self._names = (*self._tools, "answer")
        self.stop = tuple(f"</{name}>" for name in self._names)
        self._opening = Segment(self._encode("\n<information>"), Source.TEMPLATE)
        self._closing = Segment(self._encode("</information>\n"), Source.TEMPLATE)

    def begin(self, prompt: Observation) -> list[Segment]:
        """The chat template's opening where the tokenizer has one, plain text otherwise."""
        if self._tokenizer.chat_template:
            marker = "\x00task\x00"
            message = {"role": "user", "content": self._instructions + marker}
            rendered = self._tokenizer.apply_chat_template(
                [message], tokenize=False, add_generation_prompt=True
            )
            before, _, after = str(rendered).partition(marker)
        else:
            before, after = (self._tokenizer.bos_token or "") + self._instructions, "\n"
        return [
            Segment(self._encode(before), Source.TEMPLATE),
            Segment(self._encode_foreign(prompt.content), prompt.source),
            Segment(self._encode(after), Source.TEMPLATE),
        ]

    def extend(self, observation: Observation) -> list[Segment]:
        """An information block; its content cannot contain special tokens."""
        content = self._encode_foreign(f" {observation.content}")
        return [self._opening, Segment(content, observation.source), self._closing]

    def parse(self, tokens: Sequence[int]) -> Action:
        """Read one model turn: exactly one complete tag beside the thoughts, or an error."""
        text = self._tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        thought = " ".join(part.strip() for part in _THOUGHT.findall(text))
        said = _THOUGHT.sub("", text)
        if "<information>" in said or "</information>" in said:
            return self._malformed(text, thought, "only the environment writes <information>")
        if "<think>" in said:
            return self._malformed(text, thought, "<think> is not closed by </think>")
        found = [
            (name, content)
            for name in self._names
            for content in re.findall(f"<{name}>(.*?)</{name}>", said, re.DOTALL)
        ]
        if len(found) != 1:
            problem = "there is no complete action" if not found else "there are several actions"
            return self._malformed(text, thought, problem)
        name, content = found[0][0], found[0][1].strip()
        if not content:
            return self._malformed(text, thought, f"<{name}> is empty")
        if name == "answer":
            return Action(text, thought, answer=content)
        return self._call(text, thought, self._tools[name], content)

    def render(self, action: Action) -> list[int]:
        """Tokens of an action, as `parse` reads them; one with `error` is its text and an end."""
        if action.error is not None:
            return self._encode(f"{action.text}{self._tokenizer.eos_token or ''}")
        thought = f"<think> {action.thought}</think>" if action.thought else ""
        if action.answer is not None:
            return self._encode(f"{thought}<answer> {action.answer}</answer>")
        (call,) = action.calls
        single = _single_argument(self._tools[call.name])
        content = call.arguments[single] if single else json.dumps(dict(call.arguments))
        return self._encode(f"{thought}<{call.name}> {content}</{call.name}>")

    def truncate(self, text: str, max_tokens: int) -> str:
        """Cut at a token boundary of the policy's tokenizer."""
        encoded = self._foreign_tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True
        )
        offsets = encoded["offset_mapping"]
        return text if len(offsets) <= max_tokens else text[: offsets[max_tokens][0]].rstrip()

    def _call(self, text: str, thought: str, tool: Tool, content: str) -> Action:
        single = _single_argument(tool)
        arguments: Mapping[str, Any]
        if single:
            arguments = {single: content}
        else:
            try:
                arguments = json.loads(content)
            except json.JSONDecodeError as error:
                return self._malformed(text, thought, f"<{tool.name}> is not JSON: {error}")
            if not isinstance(arguments, dict):
                return self._malformed(text, thought, f"<{tool.name}> needs a JSON object")
        return Action(text, thought, calls=(ToolCall(tool.name, arguments),))

    def _malformed(self, text: str, thought: str, problem: str) -> Action:
        forms = " or ".join(f"<{name}>…</{name}>" for name in self._names)
        return Action(text, thought, error=f"Malformed: {problem}. End your turn with {forms}.")

    def _describe(self, tool: Tool) -> str:
        single = _single_argument(tool)
        inside = single or json.dumps(tool.schema["parameters"]["properties"])
        return f"To use {tool.name}, write <{tool.name}>{inside}</{tool.name}>: {tool.description}"

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode_foreign(self, text: str) -> list[int]:
        """Text that others wrote: a special token's name in it is only text."""
        encoded = self._foreign_tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return list(encoded["input_ids"])


def _single_argument(tool: Tool) -> str | None:
    properties: Mapping[str, Any] = tool.schema["parameters"].get("properties", {})
    if len(properties) != 1:
        return None
    name, schema = next(iter(properties.items()))
    return name if schema.get("type") == "string" else None
