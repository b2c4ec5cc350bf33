"""Chat completions as JSON: what is read, what is refused by which name, what is written."""

import base64
import json
from typing import Any

import pytest

from gateway_tests.dialects.serving import (
    CALLING,
    PLAIN,
    PNG,
    TWO,
    WEATHER,
    check_refused,
)
from turnwise.types import ToolCall
from turnwise_gateway.dialects import chat_completions
from turnwise_gateway.requests import Message, RefusedError, Request, ToolSchema

USER = {"role": "user", "content": "How warm is it?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}}
ASSISTANT = {"role": "assistant", "content": "One moment.", "tool_calls": [CALL]}
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def read(*messages: dict[str, Any], **fields: Any) -> Request:
    return chat_completions.read({"model": "m", "messages": [*messages] or [USER], **fields})


def image(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def calling(**function: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", **function}}
    return {"role": "assistant", "tool_calls": [call]}


def test_a_conversation_is_read_message_by_message() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        image(URL)["content"][0],
        {"type": "text", "text": "!"},
    ]
    request = read(
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "In English."}]},
        USER,
        {"role": "user", "content": parts},
        ASSISTANT,
        {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "18"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "8"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "19"}]},
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("system", "In English."),
        Message("user", "How warm is it?"),
        Message("user", "Look:\n!", images=(PNG,)),
        Message("assistant", "One moment.", (ToolCall("weather", {"a": 1}, id="c1"),)),
        Message("tool", "18", call="c1"),
        Message("assistant", "18"),
        Message("assistant", "", (ToolCall("weather", {"a": 1}, id="c1"),)),
        Message("tool", "19", call="c1"),
    )
    assert request.ignored == ("name",)


def test_options_are_read() -> None:
    request = read(
        tools=[
            TOOL,
            {"type": "function", "function": {"name": "clock", "description": "The time."}},
        ],
        max_completion_tokens=7,
        stop=["a", "b"],
        n=3,
        logprobs=True,
        top_logprobs=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert request.tools == (
        ToolSchema("weather", "", WEATHER),
        ToolSchema("clock", "The time.", {"type": "object", "properties": {}}),
    )
    assert (request.dialect, request.model) == ("chat_completions", "m")
    assert (request.max_tokens, request.stop, request.count) == (7, ("a", "b"), 3)
    assert (request.logprobs, request.stream, request.stream_usage) == (True, True, True)
    assert read(max_tokens=5, stop="x") == Request(
        (Message("user", "How warm is it?"),), (), "chat_completions", "m", 5, ("x",)
    )


def test_what_has_no_bearing_is_listed() -> None:
    harmless = {
        "temperature": 0.2,
        "top_p": 0.9,
        "seed": 3,
        "user": "me",
        "metadata": {"run": "1"},
        "store": False,
        "service_tier": "auto",
        "reasoning_effort": "low",
        "verbosity": "low",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "presence_penalty": 0,
    }
    assert set(read(**harmless).ignored) == set(harmless)
    thinking = {"role": "assistant", "content": "Hm.", "reasoning_content": "I think."}
    thinking |= {"provider_specific_fields": {"refusal": None}}  # as LiteLLM adds them
    strict = {"type": "function", "function": {"name": "weather", "strict": True}}
    assert read(thinking, tools=[strict]).ignored == (
        *("reasoning_content", "provider_specific_fields", "strict"),
    )


def test_what_is_as_without_it_is_taken() -> None:
    plain = {
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "logit_bias": {},
        "audio": None,
        "n": 1,
        "functions": [],
        "logprobs": False,
        "stream": False,
        "stop": None,
        "max_tokens": None,
        "tools": [],
    }
    assert read(**plain) == read()
    assert read(tool_choice="none") == read()


def nested(depth: int) -> dict[str, Any]:
    """A schema of objects in objects."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"^tools\[0\].function.parameters: is nested more than"):
        read(tools=[{**TOOL, "function": {"name": "f", "parameters": nested(2_000)}}])


def test_halves_of_surrogate_pairs_do_not_get_in() -> None:
    request = read(
        {"role": "user", "content": "\ud800"},
        calling(arguments='{"a": ["\\ud800"]}'),
        model="\udfff",
    )
    assert [message.text for message in request.messages] == ["?", ""]
    assert request.messages[1].calls[0].arguments == {"a": ["?"]}
    assert request.model == "?"


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"grammar": "root"}, "grammar"),
    "format": ({"response_format": {"type": "json_object"}}, "response_format.type"),
    "choice": ({"tool_choice": "required"}, "tool_choice"),
    "one tool": ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice"),
    "bias": ({"logit_bias": {"5": -100}}, "logit_bias"),
    "prediction": ({"prediction": {"type": "content"}}, "prediction"),
    "audio": ({"audio": {"voice": "x"}}, "audio"),
    "moderation": ({"moderation": {"model": "x"}}, "moderation"),
    "modalities": ({"modalities": ["text", "audio"]}, "modalities"),
    "search": ({"web_search_options": {"a": 1}}, "web_search_options"),
    "functions": ({"functions": [{"name": "f"}]}, "functions"),
    "function": ({"function_call": "auto"}, "function_call"),
    "one call": ({"parallel_tool_calls": False}, "parallel_tool_calls"),
    "top": ({"logprobs": True, "top_logprobs": 2}, "top_logprobs"),
    "no number": ({"n": True}, "n"),
    "none": ({"n": 0}, "n"),
    "many": ({"n": 129}, "n"),
    "both": ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "stop": ({"stop": [1]}, "stop"),
    "empty stop": ({"stop": ""}, "stop"),
    "stream": ({"stream": "yes"}, "stream"),
    "stream option": ({"stream_options": {"pace": 1}}, "stream_options.pace"),
    "model": ({"model": 5}, "model"),
    "tools": ({"tools": {}}, "tools"),
    "no object": ({"tools": ["weather"]}, "tools[0]"),
    "custom": ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type"),
    "no function": ({"tools": [{"type": "function"}]}, "tools[0].function"),
    "unnamed": ({"tools": [{**TOOL, "function": {"name": ""}}]}, "tools[0].function.name"),
    "schema": (
        {"tools": [{**TOOL, "function": {"name": "f", "parameters": {"type": "string"}}}]},
        "tools[0].function.parameters.type",
    ),
    "extra": (
        {"tools": [{**TOOL, "function": {"name": "f", "cost": 3}}]},
        "tools[0].function.cost",
    ),
}
MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"role": "function", "content": ""}, "messages[1].role"),
    "content": ({"role": "user"}, "messages[1].content"),
    "number": ({"role": "user", "content": 5}, "messages[1].content"),
    "part": ({"role": "user", "content": ["a"]}, "messages[1].content[0]"),
    "untyped": ({"role": "user", "content": [{}]}, "messages[1].content[0].type"),
    "audio": (
        {"role": "user", "content": [{"type": "input_audio"}]},
        "messages[1].content[0].type",
    ),
    "file": ({"role": "user", "content": [{"type": "file"}]}, "messages[1].content[0].type"),
    "image": ({**ASSISTANT, "content": image(URL)["content"]}, "messages[1].content[0].type"),
    "link": (image("https://a.example/b.png"), "messages[1].content[0].image_url.url"),
    "jpeg": (image("data:image/jpeg;base64,AAAA"), "messages[1].content[0].image_url.url"),
    "base64": (image("data:image/png;base64,?"), "messages[1].content[0].image_url.url"),
    "no png": (image("data:image/png;base64,AAAA"), "messages[1].content[0].image_url.url"),
    "name": ({**USER, "name": "Ada"}, "messages[1].name"),
    "unknown": ({**USER, "mood": "good"}, "messages[1].mood"),
    "orphan": ({"role": "tool", "tool_call_id": "c9", "content": ""}, "messages[1].tool_call_id"),
    "refusal": ({**ASSISTANT, "refusal": "No."}, "messages[1].refusal"),
    "function": ({**ASSISTANT, "function_call": {"name": "f"}}, "messages[1].function_call"),
    "voice": ({**ASSISTANT, "audio": {"id": "a"}}, "messages[1].audio"),
    "arguments": (calling(arguments="{"), "messages[1].tool_calls[0].function.arguments"),
    "list": (calling(arguments="[]"), "messages[1].tool_calls[0].function.arguments"),
    "deep": (calling(arguments="[" * 99_999), "messages[1].tool_calls[0].function.arguments"),
    "absent": (calling(), "messages[1].tool_calls[0].function.arguments"),
    "custom": (
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]},
        "messages[1].tool_calls[0].type",
    ),
}


@pytest.mark.parametrize(("fields", "field"), OPTIONS.values(), ids=OPTIONS)
def test_options_are_refused_by_name(fields: dict[str, Any], field: str) -> None:
    check_refused(lambda: read(**fields), field)


@pytest.mark.parametrize(("message", "field"), MESSAGES.values(), ids=MESSAGES)
def test_messages_are_refused_by_name(message: dict[str, Any], field: str) -> None:
    check_refused(lambda: read(USER, message), field)


def test_a_request_without_messages_is_refused() -> None:
    with pytest.raises(RefusedError, match="messages: must have at least one"):
        chat_completions.read({"model": "m"})


def test_log_probabilities_are_there_if_they_were_asked_for() -> None:
    first, second = chat_completions.body(read(logprobs=True), TWO)["choices"]
    assert [token["token"] for token in first["logprobs"]["content"]] == ["It", " is", " �", "�"]
    assert first["logprobs"]["content"][2] == {
        "token": " �",
        "logprob": -2.0,
        "bytes": [32, 195],
        "top_logprobs": [],
    }
    assert (second["finish_reason"], len(second["logprobs"]["content"])) == ("length", 1)


def test_events_end_and_have_no_number_of_tokens() -> None:
    written = list(chat_completions.events(read(stream=True), CALLING))
    assert written[-1] == "data: [DONE]\n\n"
    assert all(event.startswith("data: ") and event.endswith("\n\n") for event in written)
    chunks = [json.loads(event.removeprefix("data: ")) for event in written[:-1]]
    assert not any("usage" in chunk for chunk in chunks)


def test_the_number_of_tokens_is_an_event_if_it_was_asked_for() -> None:
    request = read(stream=True, stream_options={"include_usage": True})
    *others, last, _ = chat_completions.events(request, PLAIN)
    chunk = json.loads(last.removeprefix("data: "))
    assert (chunk["choices"], chunk["usage"]["total_tokens"]) == ([], 16)
    assert all(json.loads(one.removeprefix("data: "))["usage"] is None for one in others)


def test_an_error_in_the_words_of_the_api() -> None:
    told = chat_completions.error(RefusedError("n: may be at most 128", field="n"))
    assert told["error"] == {
        "message": "n: may be at most 128",
        "type": "invalid_request_error",
        "param": "n",
        "code": None,
    }
    assert chat_completions.error(RefusedError("No."))["error"]["param"] is None
