"""Parts of replies that all dialects write alike: calls' arguments, server-sent events, errors."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.types import ToolCall
from turnwise_gateway.requests import RefusedError

PIECE = 24
"""Characters of a delta: the reply is there as a whole, pieces are what clients expect."""


def pieces(text: str) -> Iterator[str]:
    """A text in pieces, none of them empty."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def arguments_json(call: ToolCall) -> str:
    """The arguments of a call as OpenAI's formats have them: JSON in a string."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def openai_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_json(call)}
    return {"id": call.id, "type": "function", "function": function}


def event(data: Mapping[str, Any], named: bool = True) -> str:
    """A server-sent event, if `named` under its `type`."""
    line = f"data: {json.dumps(data)}\n\n"
    return f"event: {data['type']}\n{line}" if named else line


def openai_error(refused: RefusedError) -> dict[str, Any]:
    about = {"message": refused.message, "type": refused.kind, "param": refused.field or None}
    return {"error": {**about, "code": None}}
