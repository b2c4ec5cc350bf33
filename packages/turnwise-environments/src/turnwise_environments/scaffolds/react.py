"""ReAct's text: Thought, Action and Action Input; then Observation; at last Final Answer.

A turn is lines of a label and a text, which may go on over further lines. The input of an action is
the argument of a tool that takes one string, and a JSON object for any other. A turn of calls ends
with the word "Observation:", which the model writes and the observation follows; one with an answer
ends with the text. With `parallel_calls` a turn may have several actions, each with its input.

Source: Yao et al. 2022 (arXiv 2210.03629); "Action Input" and "Final Answer" are later usage.
"""

import json
import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from turnwise.scaffolds.text import (
    TextScaffold,
    arguments_of,
    contents,
    single_argument,
    written_arguments,
)
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool
from turnwise.types import Action, Observation, ToolCall, ToolResult

INSTRUCTIONS = (
    "Answer the question. You have these tools:\n{tools}\n"
    "Write in this form:\n"
    "Thought: what to do next\n"
    "Action: the name of a tool\n"
    "Action Input: its input\n"
    "Observation: what the tool returns\n"
    "and so on, as often as you need. When you know the answer, write\n"
    "Thought: what decides it\n"
    "Final Answer: the answer, without explanation\n"
)
_LABEL = re.compile(r"^[ \t]*(Thought|Action Input|Action|Observation|Final Answer):", re.MULTILINE)
OBSERVATION = "Observation:"


class ReActScaffold(TextScaffold):
    """See the module."""

    _thought = "Thought: {}\n"
    _form = "End your turn with 'Action:' and 'Action Input:', or with 'Final Answer:'."

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Tool],
        instructions: str = INSTRUCTIONS,
        parallel_calls: bool = False,
        date: str = "",
    ) -> None:
        """`instructions` precede the task; `{tools}` in them becomes the list of tools."""
        super().__init__(tokenizer, tools, instructions, date)
        self._parallel = parallel_calls
        self.stop: tuple[str, ...] = (f"\n{OBSERVATION}",)

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
        words: Sequence[str] = (),
    ) -> list[Segment]:
        """The observation after its label, which is only added where the model did not write it;
        each of several results has its own, and a user's words. What stands in it cannot hold
        special tokens."""
        begun = self._decode(written).rstrip().endswith(OBSERVATION)
        segments = []
        for text, source in contents(observation, results, words):
            if not begun:
                segments.append(Segment(self._encode(f"\n{OBSERVATION}"), Source.TEMPLATE))
            segments.append(Segment(self._encode_foreign(f" {text}"), source))
            begun = False
        end = Segment(self._encode("\n"), Source.TEMPLATE)
        return [*segments, *self._images(observation), end, *self._reopened()]

    def _parted(self, turn: str) -> tuple[str, list[tuple[str, str]]]:
        opened, said = self._thought_and_rest(turn)
        before, *labelled = _LABEL.split(said.removesuffix(self._end))
        parts = list(zip(labelled[::2], map(str.strip, labelled[1::2]), strict=True))
        if parts and parts[-1] == (OBSERVATION[:-1], ""):
            parts.pop()
        thoughts = [content for label, content in parts if label == "Thought"]
        thought = " ".join(filter(None, [opened, before.strip(), *thoughts]))
        return thought, [part for part in parts if part[0] != "Thought"]

    def _said(self, action: Action) -> str:
        if action.answer is not None:
            return f"Final Answer: {action.answer}{self._end}"
        return "\n".join([*map(self._written, action.calls), OBSERVATION])

    def _read(self, said: Sequence[tuple[str, str]]) -> tuple[tuple[ToolCall, ...], str | None]:
        """One action with its input, several where parallel calls are allowed, or a final
        answer."""
        labels = [label for label, _ in said]
        if OBSERVATION[:-1] in labels:
            raise ValueError("only the environment writes what follows 'Observation:'")
        if labels == ["Final Answer"]:
            if not said[0][1]:
                raise ValueError("the final answer is empty")
            return (), said[0][1]
        if not labels:
            raise ValueError("there is no complete action")
        if "Final Answer" in labels or (len(labels) > 2 and not self._parallel):
            raise ValueError("there are several actions")
        if labels != ["Action", "Action Input"] * (len(labels) // 2):
            raise ValueError("each 'Action:' needs one 'Action Input:' after it")
        pairs = zip(said[::2], said[1::2], strict=True)
        return tuple(self._call(name, content) for (_, name), (_, content) in pairs), None

    def _call(self, name: str, content: str) -> ToolCall:
        if name not in self._tools:
            raise ValueError(f"there is no tool {name!r}; tools: {', '.join(self._tools)}")
        if not content:
            raise ValueError(f"the input of {name} is empty")
        try:
            return ToolCall(name, arguments_of(self._tools[name], content))
        except ValueError as error:
            raise ValueError(f"the input of {name} {error}") from None

    def _written(self, call: ToolCall) -> str:
        content = written_arguments(self._tools[call.name], call)
        return f"Action: {call.name}\nAction Input: {content}"

    def _described(self) -> str:
        return "\n".join(self._describe(tool) for tool in self._tools.values())

    def _describe(self, tool: Tool) -> str:
        inside = single_argument(tool) or json.dumps(tool.schema["parameters"]["properties"])
        return f"{tool.name}: {tool.description} Input: {inside}"
