"""Conversations and replies in the words of each dialect, for tests that all of them pass."""

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import pytest

from turnwise_gateway.dialects import chat_completions, messages, responses
from turnwise_gateway.dialects.registry import Dialect
from turnwise_gateway.requests import Message, Reply, Request

ALL: dict[str, Dialect] = {one.NAME: one for one in (chat_completions, responses, messages)}
by_dialect = pytest.mark.parametrize("dialect", ALL)
INPUT = {"chat_completions": "messages", "responses": "input", "messages": "messages"}
"""The field that the conversation stands in."""
ONE_TOOL: dict[str, Any] = {
    "chat_completions": {"type": "function", "function": {"name": "a"}},
    "responses": {"type": "function", "name": "a"},
    "messages": {"type": "tool", "name": "a"},
}
"""A choice of the tool `a`."""


def body(dialect: str, said: Sequence[Any], **fields: Any) -> dict[str, Any]:
    """A request's body, from what `written` gives."""
    bound = {"max_tokens": 9} if dialect == "messages" else {}
    return {"model": "policy", INPUT[dialect]: list(said), **bound, **fields}


def tool(dialect: str, name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    if dialect == "messages":
        return {"name": name, "input_schema": schema, **more}
    if dialect == "responses":
        return {"type": "function", "name": name, "parameters": schema, **more}
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


def written(dialect: str, conversation: Sequence[Message]) -> list[Any]:
    """Messages as an agent writes them."""
    if dialect == "messages":
        return list(_anthropic(conversation))
    if dialect == "responses":
        return [item for one in conversation for item in _items(one)]
    return [_chat(one) for one in conversation]


def _chat(one: Message) -> dict[str, Any]:
    if one.role == "tool":
        return {"role": "tool", "tool_call_id": one.call, "content": one.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in one.calls
    ]
    return {"role": one.role, "content": one.text} | ({"tool_calls": calls} if calls else {})


def _items(one: Message) -> Iterator[dict[str, Any]]:
    if one.role == "tool":
        yield {"type": "function_call_output", "call_id": one.call, "output": one.text}
    elif one.text or not one.calls:
        yield {"role": one.role, "content": one.text}
    for call in one.calls:
        named = {"type": "function_call", "name": call.name, "call_id": call.id}
        yield {**named, "arguments": json.dumps(call.arguments)}


def _anthropic(conversation: Sequence[Message]) -> Iterator[dict[str, Any]]:
    rest = list(conversation)
    while rest:
        results = list(takewhile(lambda one: one.role == "tool", rest))
        blocks: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": one.call, "content": one.text} for one in results
        ]
        if blocks:
            rest = rest[len(results) :]
            yield {"role": "user", "content": blocks}
            continue
        one = rest.pop(0)
        blocks = [{"type": "text", "text": one.text}] if one.text or not one.calls else []
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
            for call in one.calls
        ]
        yield {"role": one.role, "content": blocks}


def told(dialect: str, body: dict[str, Any]) -> list[Any]:
    """The reply in a body as an agent sends it back."""
    if dialect == "chat_completions":
        return [body["choices"][0]["message"]]
    if dialect == "responses":
        return list(body["output"])
    return [{"role": "assistant", "content": body["content"]}]


def pieced(dialect: str, request: Request, reply: Reply) -> dict[str, Any]:
    """The words, the thought and each call's arguments out of a stream's deltas, as a client joins
    them, and what the stream says at its end."""
    found: dict[str, Any] = {"text": "", "thought": "", "arguments": {}, "ending": None}
    for event in data(ALL[dialect].events(request, reply)):
        _JOINED[dialect](found, event)
    return found


def data(events: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The data of events, without the words that end them."""
    for event in events:
        assert event.endswith("\n\n")
        assert "\n\n" not in event[:-2]
        line = event[:-2].split("\n")[-1].removeprefix("data: ")
        if line != "[DONE]":
            yield json.loads(line)


def _join_chat(found: dict[str, Any], event: dict[str, Any]) -> None:
    found["usage"] = event.get("usage")
    for choice in event["choices"][:1]:
        if choice["index"]:
            continue
        delta = choice["delta"]
        found["text"] += delta.get("content") or ""
        found["thought"] += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", ()):
            place = call["index"]
            before = found["arguments"].get(place, "")
            found["arguments"][place] = before + call["function"]["arguments"]
        found["ending"] = choice["finish_reason"] or found["ending"]


def _join_responses(found: dict[str, Any], event: dict[str, Any]) -> None:
    kind = event["type"]
    if kind == "response.output_text.delta":
        found["text"] += event["delta"]
    elif kind == "response.reasoning_summary_text.delta":
        found["thought"] += event["delta"]
    elif kind == "response.function_call_arguments.delta":
        place = event["output_index"]
        found["arguments"][place] = found["arguments"].get(place, "") + event["delta"]
    elif kind in ("response.completed", "response.incomplete"):
        assert kind == f"response.{event['response']['status']}"
        found["ending"] = event["response"]["status"]
        found["usage"] = event["response"]["usage"]


def _join_messages(found: dict[str, Any], event: dict[str, Any]) -> None:
    delta = event.get("delta", {})
    if event["type"] == "message_delta":
        found["ending"], found["usage"] = delta["stop_reason"], event["usage"]
    elif delta.get("type") == "input_json_delta":
        place = event["index"]
        found["arguments"][place] = found["arguments"].get(place, "") + delta["partial_json"]
    else:
        found["text"] += delta.get("text", "")
        found["thought"] += delta.get("thinking", "")


_JOINED = {"chat_completions": _join_chat, "responses": _join_responses, "messages": _join_messages}
