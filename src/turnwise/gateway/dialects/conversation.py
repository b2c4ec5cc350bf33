"""Messages as they are read, and the tools beside them: what all dialects demand of both.

Not here: in which fields they stand (the modules of the dialects).
"""

from collections.abc import Sequence

from turnwise.gateway.dialects.fields import Fields
from turnwise.gateway.requests import Message, ToolSchema


class Conversation:
    """A request's messages in their order, each result after the call that it answers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._calls: set[str] = set()

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)
        self._calls.update(call.id for call in message.calls)

    def answered(self, fields: Fields, name: str) -> str:
        """The id of a call in a field of its result. Raises RefusedError where no message before
        has such a call."""
        call = fields.text(name)
        if call not in self._calls:
            raise fields.refused(name, f"{call!r} is not the id of a call before it")
        return call

    def complete(self, fields: Fields, name: str) -> tuple[Message, ...]:
        """All of them; `name` is the field in which they stood. Raises RefusedError for none."""
        if not self.messages:
            raise fields.refused(name, "must have at least one message")
        return tuple(self.messages)


def joined(texts: Sequence[str], role: str) -> str:
    """Parts of a text as one: of the assistant's as they are, of others each on a line of its own.

    >>> joined(["It is ", "warm."], "assistant"), joined(["Read this.", "It is warm."], "user")
    ('It is warm.', 'Read this.\\nIt is warm.')
    """
    return ("" if role == "assistant" else "\n").join(texts)


def read_tool(tool: Fields, parameters: str) -> ToolSchema:
    """A tool of the agent's own; `parameters` names the field of its schema."""
    name = tool.text("name")
    if not name:
        raise tool.refused("name", "must not be empty")
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
        caller.end()


def distinct(fields: Fields, tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """The tools, as long as no two have one name. Raises RefusedError otherwise."""
    names = [tool.name for tool in tools]
    seen = set[str]()
    for number, name in enumerate(names):
        if name in seen:
            raise fields.refused(f"tools[{number}].name", f"{name!r} is there twice")
        seen.add(name)
    return tuple(tools)


def check_choice(fields: Fields, tools: Sequence[ToolSchema]) -> None:
    """Read `tool_choice`. Raises RefusedError where the model may not choose by itself whether it
    calls a tool, and which."""
    choice = fields.text_or_object("tool_choice", "auto")
    kind = choice if isinstance(choice, str) else choice.text("type")
    if kind == "none" and tools:
        raise fields.refused("tool_choice", "'none' is not supported: leave the tools out instead")
    if kind not in ("auto", "none"):
        raise fields.refused("tool_choice", f"{kind!r} is not supported, only 'auto'")
    if not isinstance(choice, str):
        choice.refuse({"disable_parallel_tool_use": "true is not supported: leave it out"})
        choice.end()


def read_stops(fields: Fields, name: str) -> tuple[str, ...]:
    """Strings that end a reply."""
    stops = fields.texts(name)
    if "" in stops:
        raise fields.refused(name, "must not have an empty string")
    return stops
