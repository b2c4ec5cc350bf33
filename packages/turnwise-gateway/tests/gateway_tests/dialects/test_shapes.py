"""Replies have every field that the packages' own types demand. Clients build those types without
checking, so a missing field would not be seen by talking to them."""

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args

import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway_tests.dialects.serving import CHOICES, TWO
from turnwise_gateway.dialects import chat_completions, messages, responses
from turnwise_gateway.requests import RefusedError, Reply, Request, ToolSchema

REPLIES = {"two": TWO} | {
    name: Reply("s1-2", "policy", (one,), 57, 1_700) for name, one in CHOICES.items()
}
TYPES: dict[ModuleType, tuple[Any, Any]] = {
    chat_completions: (ChatCompletion, ChatCompletionChunk),
    responses: (Response, ResponseStreamEvent),
    messages: (Message, RawMessageStreamEvent),
}
REQUEST = Request(
    (), (ToolSchema("weather", "", {"type": "object"}),), logprobs=True, stream_usage=True
)


def data(events: Iterator[str]) -> list[Any]:
    """The data of events, without the words that end them."""
    lines = [line for event in events for line in event.split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def event_type(part: Any, kind: str) -> Any:
    """The type of an event: `part` itself, or out of a union the one whose `type` is this."""
    if not kind:
        return part
    (found,) = (
        one
        for one in get_args(get_args(part)[0])
        if get_args(one.model_fields["type"].annotation) == (kind,)
    )
    return found


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("dialect", TYPES, ids=lambda dialect: dialect.NAME)
def test_replies_have_all_fields(dialect: ModuleType, reply: Reply) -> None:
    whole, part = TYPES[dialect]
    TypeAdapter(whole).validate_python(dialect.body(REQUEST, reply), strict=True)
    checks: dict[str, TypeAdapter[Any]] = {}
    for event in data(dialect.events(REQUEST, reply)):
        kind = event.get("type", "")
        checks[kind] = checks.get(kind) or TypeAdapter(event_type(part, kind))
        checks[kind].validate_python(event, strict=True)


def test_counts_and_errors_have_all_fields() -> None:
    MessageTokensCount.model_validate(messages.counted(5), strict=True)
    ErrorResponse.model_validate(messages.error(RefusedError("No.")), strict=True)
