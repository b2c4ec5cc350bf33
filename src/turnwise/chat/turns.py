"""A turn of a model that was given tools: its words, and the calls that it asks for.

Not here: how a turn is asked for (`endpoint.py`), and what the calls do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from turnwise.strict_json import DECODER
from turnwise.types import encodable


@dataclass(frozen=True)
class AskedCall:
    """A call that the model asks for. Example: AskedCall("call_1", "search", {"query": "x"})."""

    id: str
    """The endpoint's name of it."""
    name: str
    arguments: Mapping[str, Any] | None
    """None where the model wrote something else than a JSON object."""


@dataclass(frozen=True)
class ChatTurn:
    """One turn of the model."""

    text: str
    """Its words, without thinking between tags."""
    calls: tuple[AskedCall, ...] = ()
    cut_off: bool = False
    """Whether it reached the endpoint's limit of tokens."""
    asked: tuple[Mapping[str, Any], ...] = ()
    """The calls as they came, which go back into the conversation."""
    read: int = 0
    written: int = 0
    """Tokens of the conversation and of the turn, as the endpoint counts them; 0 where it does
    not."""


def read_turn(answer: httpx2.Response) -> ChatTurn | None:
    """The turn of an answer of `/chat/completions`; None for an answer that is none."""
    try:
        content = json.loads(encodable(json.dumps(answer.json(), ensure_ascii=False)))
        choice = content["choices"][0]
        message = choice["message"]
        asked = message.get("tool_calls") or []
        calls = tuple(_call(one) for one in asked)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    said = message.get("content")
    words = said.rpartition("</think>")[2].strip() if isinstance(said, str) else ""
    cut_off = choice.get("finish_reason") == "length"
    read, written = (_count(content, name) for name in ("prompt_tokens", "completion_tokens"))
    return ChatTurn(words, calls, cut_off, tuple(asked), read, written)


def _call(asked: Mapping[str, Any]) -> AskedCall:
    function = asked["function"]
    try:
        arguments = DECODER.decode(function.get("arguments") or "{}")
        json.dumps(arguments, ensure_ascii=False).encode()  # half of a character is refused
    except (ValueError, RecursionError):
        arguments = None
    given = arguments if isinstance(arguments, dict) else None
    return AskedCall(str(asked["id"]), str(function["name"]), given)


def _count(content: Mapping[str, Any], name: str) -> int:
    usage = content.get("usage")
    counted = usage.get(name) if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) and counted > 0 else 0
