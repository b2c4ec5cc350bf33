"""Messages as they are read, and the tools beside them: what all dialects demand of both."""

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from turnwise.types import ToolCall
from turnwise_gateway.dialects.fields import Fields
from turnwise_gateway.requests import Message, ToolSchema

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")

Kinds = Mapping[str, Callable[[Fields], str | bytes]]
"""Reads a part of a message, by its kind: a text, or an image as PNG."""


class Conversation:
    """A request's messages in their order, each result after the call that it answers. Calls of a
    message that share an id keep the order of their results."""

    def __init__(self) -> None:
        self._messages: list[tuple[Message, list[ToolCall]]] = []
        self._ids: set[str] = set()
        self._waiting: dict[str, deque[str]] = {}

    def add(self, message: Message) -> None:
        self._messages.append((message, []))
        if message.role == "assistant":
            self._ids, self._waiting = set(), {}
        for call in message.calls:
            self.add_call(call)

    def add_call(self, call: ToolCall) -> None:
        """Append a call to the last message, which is the assistant's."""
        own = own_id(call.id, self._ids)
        self._ids.add(own)
        self._waiting.setdefault(call.id, deque()).append(own)
        self._messages[-1][1].append(replace(call, id=own))

    def answered(self, fields: Fields, name: str) -> str:
        """The id of a call in a field of its result. Raises RefusedError where the assistant's
        message before it has no such call, or each of them has a result already."""
        call = fields.text(name)
        if call not in self._waiting:
            raise fields.refused(
                name, f"{call!r} is not the id of a call in the assistant's message before it"
            )
        if not self._waiting[call]:
            raise fields.refused(name, f"{call!r} has a result already: send one for each call")
        return self._waiting[call].popleft()

    def complete(self, fields: Fields, name: str) -> tuple[Message, ...]:
        """All of them; `name` is the field in which they stood. Raises RefusedError for none."""
        if not self._messages:
            raise fields.refused(name, "must have at least one message")
        return tuple(replace(one, calls=tuple(calls)) for one, calls in self._messages)


def own_id(given: str, others: Collection[str]) -> str:
    """The id of a call that stands after `others` of its message: the `given` one, unless one of
    them has it.

    >>> own_id("c", {"a", "b"}), own_id("b", {"a", "b"})
    ('c', 'b_2')
    """
    own = f"{given}_{len(others)}" if given in others else given
    while own in others:
        own += "_"
    return own


def joined(texts: Sequence[str], role: str) -> str:
    """Parts of a text as one: of the assistant's as they are, of others each on a line of its own.

    >>> joined(["It is ", "warm."], "assistant"), joined(["Read this.", "It is warm."], "user")
    ('It is warm.', 'Read this.\\nIt is warm.')
    """
    return ("" if role == "assistant" else "\n").join(texts)


def read_content(
    fields: Fields, name: str, role: str, kinds: Kinds
) -> tuple[str, tuple[bytes, ...]]:
    """The text and the images of a message: a string, or parts, by what reads each kind."""
    content = fields.text_or_objects(name)
    if isinstance(content, str):
        return content, ()
    parts = [kinds[part.kind("type", *kinds)](part) for part in content]
    texts = [one for one in parts if isinstance(one, str)]
    return joined(texts, role), tuple(one for one in parts if isinstance(one, bytes))


def read_tool(tool: Fields, parameters: str) -> ToolSchema:
    """A tool of the agent's own; `parameters` names the field of its schema."""
    name = tool.text("name")
    if not TOOL_NAME.fullmatch(name):
        raise tool.refused("name", "must be 1 to 128 letters, digits, underscores and hyphens")
    read = ToolSchema(name, tool.text("description", ""), tool.schema(parameters))
    tool.ignore("strict")  # as sampling is: the recipe's
    if set(tool.texts("allowed_callers")) - {"direct"}:
        raise tool.refused("allowed_callers", "only 'direct' is supported")
    tool.refuse({"defer_loading": "every tool is shown to the model from the beginning"})
    return read


def check_caller(call: Fields) -> None:
    """Read who made a call. Raises RefusedError unless it is the model itself."""
    if "caller" in call:
        caller = call.object("caller")
        caller.kind("type", "direct")


def distinct(fields: Fields, tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """The tools, as long as no two have one name. Raises RefusedError otherwise."""
    names = [tool.name for tool in tools]
    seen = set[str]()
    for number, name in enumerate(names):
        if name in seen:
            raise fields.refused(f"tools[{number}].name", f"{name!r} is there twice")
        seen.add(name)
    return tuple(tools)


def read_choice(fields: Fields, tools: Sequence[ToolSchema]) -> bool:
    """Read `tool_choice`: whether the reply has to call a tool. Raises RefusedError where the model
    may call none of the tools, or one of several."""
    choice = fields.text_or_object("tool_choice", "auto")
    kind = choice if isinstance(choice, str) else choice.text("type")
    if kind == "none" and tools:
        raise fields.refused("tool_choice", "'none' is not supported: leave the tools out instead")
    named = not isinstance(choice, str) and kind in ("function", "tool")
    if not named and kind not in ("auto", "none", "required", "any"):
        raise fields.refused(
            "tool_choice", f"{kind!r} is not supported, only 'auto' and 'required'"
        )
    demands = kind not in ("auto", "none")
    if demands and not tools:
        raise fields.refused("tool_choice", f"{kind!r} needs tools")
    if not isinstance(choice, str):
        if named:
            _check_named(choice, tools)
        choice.refuse({"disable_parallel_tool_use": "true is not supported: leave it out"})
    return demands


def _check_named(choice: Fields, tools: Sequence[ToolSchema]) -> None:
    """Raise RefusedError unless the only tool is the one that the model has to call."""
    named = choice.object("function") if "function" in choice else choice
    name, known = named.text("name"), [tool.name for tool in tools]
    if name not in known:
        raise named.refused("name", f"there is no tool {name!r:.60} in tools")
    if len(known) > 1:
        raise named.refused("name", "one of several tools cannot be chosen: offer it alone")


def read_stops(fields: Fields, name: str) -> tuple[str, ...]:
    stops = fields.texts(name)
    if "" in stops:
        raise fields.refused(name, "must not have an empty string")
    return stops
