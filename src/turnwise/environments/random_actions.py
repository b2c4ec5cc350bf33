"""Actions of an agent that knows only the tools: the reference score `random`."""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.tools.tool import Tool
from turnwise.types import Action, Task, ToolCall

MOST_CALLS = 3
LARGEST = 100
_WORD = re.compile(r"\w[\w.-]*\w|\w")


def random_script(tools: Sequence[Tool], task: Task, stream: random.Random) -> list[Action]:
    """Up to MOST_CALLS calls with arguments of the right types, then an answer. Strings and the
    answer are words of the prompt; numbers are those of the prompt, or drawn up to LARGEST."""
    words = _WORD.findall(task.prompt) or ["nothing"]
    script = [
        Action("", calls=(random_call(stream.choice(list(tools)), words, stream),))
        for _ in range(stream.randint(0, MOST_CALLS) if tools else 0)
    ]
    return [*script, Action("", answer=stream.choice(words))]


def random_call(tool: Tool, words: Sequence[str], stream: random.Random) -> ToolCall:
    """A call with all arguments that the tool needs, drawn by their types."""
    properties: Mapping[str, Any] = tool.schema["parameters"].get("properties", {})
    needed = tool.schema["parameters"].get("required", [])
    return ToolCall(
        tool.name, {name: random_value(properties[name], words, stream) for name in needed}
    )


def random_value(schema: Mapping[str, Any], words: Sequence[str], stream: random.Random) -> Any:
    """A value that fits a JSON schema of an argument; a word for what is not known."""
    if "enum" in schema:
        return stream.choice(schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        numbers = [int(word) for word in words if word.isdecimal() and len(word) < 10]
        return stream.choice([*numbers, stream.randint(0, LARGEST)])
    if kind == "boolean":
        return stream.random() < 0.5
    if kind == "array":
        return [random_value(schema.get("items", {}), words, stream)]
    return stream.choice(list(words))
