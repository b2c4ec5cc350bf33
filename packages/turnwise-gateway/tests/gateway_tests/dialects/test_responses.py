"""Responses as JSON: what is read, what is refused by which name, what is written."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from gateway_tests.dialects.serving import (
    CALLING,
    PLAIN,
    PNG,
    SILENT,
    WEATHER,
    check_refused,
)
from turnwise.types import ToolCall
from turnwise_gateway.dialects import responses
from turnwise_gateway.requests import Choice, Message, RefusedError, Request, ToolSchema

USER = {"role": "user", "content": "How warm is it?"}
TOOL = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}
SPACE = {"type": "namespace", "name": "sky", "description": "About the sky.", "tools": [TOOL, TOOL]}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "18"}
IMAGE = {
    "type": "input_image",
    "detail": "auto",
    "image_url": "data:image/png;base64," + base64.b64encode(PNG).decode(),
}
WARM = ToolCall("weather", {"a": 1}, id="c1")


def read(*items: dict[str, Any], **fields: Any) -> Request:
    return responses.read({"model": "m", "input": [*items] or [USER], **fields})


def said(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content, **fields}


def test_words_alone_are_a_users_message() -> None:
    request = responses.read({"model": "m", "input": "Hello.", "max_output_tokens": 5})
    assert request == Request((Message("user", "Hello."),), (), "responses", "m", 5)


def test_items_are_read_as_messages() -> None:
    parts = [{"type": "input_text", "text": "Look:"}, IMAGE]
    request = read(
        {"role": "developer", "content": [{"type": "input_text", "text": "In English."}]},
        USER,
        {"type": "message", "role": "user", "content": parts},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        said("One moment.", id="msg_1", status="completed", phase="commentary"),
        CALL,
        {**CALL, "call_id": "c2", "caller": {"type": "direct"}},
        RESULT,
        {**RESULT, "call_id": "c2", "output": [{"type": "input_text", "text": "19"}, IMAGE]},
        CALL,
        RESULT,
        said("It is"),
        said("18."),
        instructions="Be brief.",
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("system", "In English."),
        Message("user", "How warm is it?"),
        Message("user", "Look:", images=(PNG,)),
        Message("assistant", "One moment.", (WARM, ToolCall("weather", {"a": 1}, id="c2"))),
        Message("tool", "18", call="c1"),
        Message("tool", "19", call="c2", images=(PNG,)),
        Message("assistant", "", (WARM,)),
        Message("tool", "18", call="c1"),
        Message("assistant", "It is"),
        Message("assistant", "18."),
    )
    ignored = {"detail", "reasoning", "id", "status", "phase", "annotations"}
    assert set(request.ignored) == ignored


def test_a_reply_begins_with_its_reasoning() -> None:
    thinking = {"type": "reasoning", "id": "rs_1", "summary": []}
    request = read(USER, said("Hm."), thinking, CALL, RESULT, thinking, said("18."))
    assert [message.role for message in request.messages] == [
        *("user", "assistant", "assistant", "tool", "assistant")
    ]


def test_a_request_as_codex_sends_it() -> None:
    request = read(
        instructions="You are a coding agent.",
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning={"effort": "medium", "summary": "auto"},
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="7f3a",
        text={"verbosity": "low"},
        client_metadata={"installation": "1"},
    )
    assert request.tools == (ToolSchema("weather", "", WEATHER),)
    assert request.stream
    assert set(request.ignored) == {
        *("parallel_tool_calls", "reasoning", "store", "prompt_cache_key", "client_metadata"),
        *("verbosity", "strict"),
    }


def test_what_is_as_without_it_is_taken() -> None:
    plain: dict[str, Any] = dict.fromkeys(("previous_response_id", "conversation", "prompt"))
    plain |= {"background": False, "include": [], "truncation": "disabled", "tool_choice": "none"}
    plain |= {"text": {"format": {"type": "text"}}, "tools": [], "top_logprobs": 0}
    assert read(**plain) == read()


def offered(**fields: Any) -> dict[str, Any]:
    return {"tools": [{**TOOL, **fields}]}


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"n": 2}, "n"),
    "previous": ({"previous_response_id": "resp_1"}, "previous_response_id"),
    "conversation": ({"conversation": "conv_1"}, "conversation"),
    "prompt": ({"prompt": {"id": "p"}}, "prompt"),
    "background": ({"background": True}, "background"),
    "moderation": ({"moderation": {"model": "x"}}, "moderation"),
    "context": ({"context_management": [{"type": "compaction"}]}, "context_management"),
    "include": ({"include": ["message.output_text.logprobs"]}, "include"),
    "logprobs": ({"top_logprobs": 1}, "top_logprobs"),
    "truncation": ({"truncation": "auto"}, "truncation"),
    "format": ({"text": {"format": {"type": "json_schema"}}}, "text.format.type"),
    "choice": ({"tool_choice": "required"}, "tool_choice"),
    "one tool": ({"tool_choice": {"type": "function", "name": "weather"}}, "tool_choice"),
    "bound": ({"max_output_tokens": "7"}, "max_output_tokens"),
    "instructions": ({"instructions": ["a"]}, "instructions"),
    "search": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "custom": ({"tools": [{"type": "custom", "name": "patch"}]}, "tools[0].type"),
    "shell": ({"tools": [{"type": "local_shell"}]}, "tools[0].type"),
    "namespace": ({"tools": [SPACE | {"tools": [{"type": "custom"}]}]}, "tools[0].tools[0].type"),
    "schema": (offered(parameters="{}"), "tools[0].parameters"),
    "extra": (offered(cost=3), "tools[0].cost"),
}
ITEMS: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"type": "item_reference", "id": "msg_1"}, "input[1].type"),
    "custom": ({"type": "custom_tool_call", "call_id": "c"}, "input[1].type"),
    "search": ({"type": "web_search_call", "id": "w"}, "input[1].type"),
    "role": ({"role": "tool", "content": ""}, "input[1].role"),
    "content": ({"role": "user"}, "input[1].content"),
    "part": ({"role": "user", "content": [{"type": "input_file"}]}, "input[1].content[0].type"),
    "refusal": (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        "input[1].content[0].type",
    ),
    "image": ({"role": "system", "content": [IMAGE]}, "input[1].content[0].type"),
    "file": (
        {"role": "user", "content": [{**IMAGE, "file_id": "f"}]},
        "input[1].content[0].file_id",
    ),
    "link": (
        {"role": "user", "content": [{**IMAGE, "image_url": "https://a.example/b.png"}]},
        "input[1].content[0].image_url",
    ),
    "unknown": ({**USER, "mood": "good"}, "input[1].mood"),
    "orphan": (RESULT, "input[1].call_id"),
    "arguments": ({**CALL, "arguments": "{"}, "input[1].arguments"),
    "caller": ({**CALL, "caller": {"type": "program"}}, "input[1].caller.type"),
}


@pytest.mark.parametrize(("fields", "field"), OPTIONS.values(), ids=OPTIONS)
def test_options_are_refused_by_name(fields: dict[str, Any], field: str) -> None:
    check_refused(lambda: read(**fields), field)


@pytest.mark.parametrize(("item", "field"), ITEMS.values(), ids=ITEMS)
def test_items_are_refused_by_name(item: dict[str, Any], field: str) -> None:
    check_refused(lambda: read(USER, item), field)


@pytest.mark.parametrize("given", [None, []])
def test_a_request_without_input_is_refused(given: Any) -> None:
    with pytest.raises(RefusedError, match=r"^input: "):
        responses.read({"model": "m", "input": given})


def test_a_tool_that_is_refused_is_named_with_what_to_do() -> None:
    with pytest.raises(RefusedError, match=r"'web_search' is not supported.*switch this tool off"):
        read(tools=[{"type": "web_search"}])


def test_tools_in_a_namespace_are_called_by_its_name_and_theirs() -> None:
    second = {**TOOL, "name": "clock", "description": "The time."}
    space = SPACE | {"tools": [TOOL, second]}
    request = read(USER, {**CALL, "namespace": "sky"}, RESULT, tools=[space, second])
    assert [(one.name, one.description) for one in request.tools] == [
        ("sky__weather", "About the sky."),
        ("sky__clock", "The time."),
        ("clock", "The time."),
    ]
    assert request.messages[1].calls == (ToolCall("sky__weather", {"a": 1}, "c1"),)
    calls = (ToolCall("sky__clock", {}, "call_1"), ToolCall("clock", {}, "call_2"))
    reply = replace(PLAIN, choices=(Choice("", calls=calls, ending="calls"),))
    first, other = responses.body(request, reply)["output"]
    assert (first["namespace"], first["name"]) == ("sky", "clock")
    assert (other.get("namespace"), other["name"]) == (None, "clock")


def test_a_reply_as_a_whole() -> None:
    body = responses.body(read(tools=[TOOL], max_output_tokens=9), CALLING)
    assert (body["max_output_tokens"], body["tools"][0]["parameters"]) == (9, WEATHER)
    assert [item["type"] for item in body["output"]] == [
        *("reasoning", "message", "function_call", "function_call")
    ]


def test_a_reply_without_words_is_its_calls() -> None:
    kinds = [item["type"] for item in responses.body(read(), SILENT)["output"]]
    assert kinds == ["function_call", "function_call"]


def test_events_are_numbered_and_named() -> None:
    written = list(responses.events(read(stream=True), CALLING))
    names, data = zip(*(event.rstrip("\n").split("\n") for event in written), strict=True)
    events = [json.loads(line.removeprefix("data: ")) for line in data]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [f"event: {event['type']}" for event in events] == list(names)
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    assert events[0]["response"]["output"] == []
    assert events[-1]["response"] == responses.body(read(stream=True), CALLING)


def test_an_error_in_the_words_of_the_api() -> None:
    told = responses.error(RefusedError("Too many.", 429, kind="rate_limit_error"))
    assert (told["error"]["type"], told["error"]["message"]) == ("rate_limit_error", "Too many.")
    assert PLAIN.choices[0].text not in str(told)
