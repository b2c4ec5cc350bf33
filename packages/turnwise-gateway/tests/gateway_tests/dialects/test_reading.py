"""Requests as JSON: what each dialect reads, and what it takes without any bearing."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from gateway_tests.dialects.serving import CALLING, PLAIN, PNG, WEATHER
from gateway_tests.dialects.speaking import ALL, body, by_dialect, tool
from turnwise.types import ToolCall
from turnwise_gateway.dialects import messages, responses
from turnwise_gateway.requests import Choice, Message, Request, ToolSchema

WORDS = "How warm is it?"
USER = {"role": "user", "content": WORDS}
ASKED = Message("user", WORDS)
BASE64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
CACHE = {"cache_control": {"type": "ephemeral"}}
WARM, TIME = ToolCall("weather", {"a": 1}, id="c1"), ToolCall("clock", {}, id="c2")


def read(dialect: str, *said: Any, **fields: Any) -> Request:
    return ALL[dialect].read(body(dialect, said or [USER], **fields))


def part(text: str, kind: str = "text", **more: Any) -> dict[str, Any]:
    return {"type": kind, "text": text, **more}


def chat_call(id_: str, name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, **more, "function": {"name": name, "arguments": arguments}}


def test_a_conversation_is_read_message_by_message() -> None:
    calls = [{**chat_call("c1", "weather", '{"a": 1}', type="function"), "name": "weather"}]
    absent = dict.fromkeys(("content", "refusal", "audio", "function_call"))
    thinking: dict[str, Any] = {"reasoning_content": "Hm."}
    thinking |= {"provider_specific_fields": {"refusal": None}}  # as LiteLLM adds them
    image = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}, **CACHE}
    request = read(
        "chat_completions",
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [part("In English."), part("And quick.")]},
        {**USER, **CACHE},
        {"role": "user", "content": [part("Look:", **CACHE), image, part("!")]},
        {"role": "user", "content": []},
        {"role": "assistant", "content": "One moment.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "18"},
        {"role": "assistant", "content": [part("1"), part("8")], "tool_calls": None, **thinking},
        {"role": "assistant", "tool_calls": [*calls, chat_call("c2", "clock", "")], **absent},
        {"role": "tool", "tool_call_id": "c1", "content": [part("19"), part("20")]},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("system", "In English.\nAnd quick."),
        ASKED,
        Message("user", "Look:\n!", images=(PNG,)),
        Message("user", ""),
        Message("assistant", "One moment.", (WARM,)),
        Message("tool", "18", call="c1"),
        Message("assistant", "18"),
        Message("assistant", "", (WARM, TIME)),
        Message("tool", "19\n20", call="c1"),
        Message("tool", "", call="c2"),
    )
    assert set(request.ignored) == {"cache_control", "detail", "name", *thinking}


def test_items_are_read_as_messages() -> None:
    image = {"type": "input_image", "detail": "auto", "image_url": URL}
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a": 1}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "18"}
    thinking = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}

    def said(*texts: str, **fields: Any) -> dict[str, Any]:
        content = [part(text, "output_text", annotations=[]) for text in texts]
        return {"type": "message", "role": "assistant", "content": content, **fields}

    request = read(
        "responses",
        {"role": "developer", "content": [part("In English.", "input_text")]},
        {"role": "system", "content": "And quick."},
        {**USER, "type": "message", "id": "msg_0", "status": "completed"},
        {"role": "user", "content": [part("Look:", "input_text"), image, part("!", "input_text")]},
        thinking,
        said("One moment.", id="msg_1", status="completed", phase="commentary"),
        call,
        {**call, "call_id": "c2", "name": "clock", "arguments": "", "caller": {"type": "direct"}},
        {**result, "status": None},
        {**result, "call_id": "c2", "output": [part("1", "input_text"), part("9", "input_text")]},
        call,
        {**result, "output": [image]},
        said("It ", "is"),
        said("18."),
        instructions="Be brief.",
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("system", "In English."),
        Message("system", "And quick."),
        ASKED,
        Message("user", "Look:\n!", images=(PNG,)),
        Message("assistant", "One moment.", (WARM, TIME)),
        Message("tool", "18", call="c1"),
        Message("tool", "1\n9", call="c2"),
        Message("assistant", "", (WARM,)),
        Message("tool", "", call="c1", images=(PNG,)),
        Message("assistant", "It is"),
        Message("assistant", "18."),
    )
    ignored = {"detail", "reasoning", "id", "status", "phase", "annotations"}
    assert set(request.ignored) == ignored
    again = read("responses", USER, said("Hm."), thinking, call, result, thinking, said("18."))
    assert [message.role for message in again.messages] == [
        *("user", "assistant", "assistant", "tool", "assistant")
    ]
    alone = responses.read({"model": "m", "input": "Hello.", "max_output_tokens": 5})
    assert alone == Request((Message("user", "Hello."),), (), "responses", "m", 5)


def test_a_conversation_is_read_block_by_block() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": BASE64}
    image = {"type": "image", "source": source, **CACHE}
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"a": 1}, **CACHE}
    clock = {**call, "id": "c2", "name": "clock", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "18", **CACHE}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "Er"}
    quoted = part("One moment.", citations=None, **CACHE)
    request = read(
        "messages",
        USER,
        {"role": "user", "content": [part("Look:", **CACHE), image, part("!", citations=None)]},
        {"role": "assistant", "content": [thinking, part("One "), part("moment."), call, clock]},
        {
            "role": "user",
            "content": [
                {**result, "is_error": False},
                part("Well."),
                {**result, "tool_use_id": "c2", "content": [quoted, image, part("18?")]}
                | {"is_error": True},
                part("Go on."),
            ],
        },
        {"role": "system", "content": "Be quick."},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, call, clock]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1"},
                {**result, "tool_use_id": "c2", "content": None},
            ],
        },
        {"role": "assistant", "content": "18."},
        {"role": "assistant", "content": []},
        USER,
        system="Be brief.",
    )
    assert request.messages == (
        Message("system", "Be brief."),
        ASKED,
        Message("user", "Look:\n!", images=(PNG,)),
        Message("assistant", "One moment.", (WARM, TIME)),
        Message("tool", "18", call="c1"),
        Message("user", "Well."),
        Message("tool", "Error: One moment.\n18?", call="c2", images=(PNG,)),
        Message("user", "Go on."),
        Message("system", "Be quick."),
        Message("assistant", "", (WARM, TIME)),
        Message("tool", "", call="c1"),
        Message("tool", "", call="c2"),
        Message("assistant", "18."),
        Message("assistant", ""),
        ASKED,
    )
    assert set(request.ignored) == {"thinking", "cache_control"}


def test_options_of_chats_are_read() -> None:
    schema = {"name": "weather", "parameters": WEATHER}
    tools = [{"type": "function", "function": schema}]
    tools.append({"type": "function", "function": {"name": "clock", "description": "The time."}})
    request = read(
        "chat_completions",
        tools=tools,
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
    assert (request.dialect, request.model) == ("chat_completions", "policy")
    assert (request.max_tokens, request.stop, request.count) == (7, ("a", "b"), 3)
    assert (request.logprobs, request.stream, request.stream_usage) == (True, True, True)
    assert read("chat_completions", max_tokens=5, stop="x") == Request(
        (ASKED,), (), "chat_completions", "policy", 5, ("x",)
    )


def test_options_of_messages_are_read() -> None:
    offered = {"name": "weather", "description": "Asks.", "input_schema": WEATHER}
    stops = {"stop_sequences": ["a", "b"]}
    request = read("messages", tools=[offered], **stops, stream=True, temperature=1)
    assert request == Request(
        (ASKED,),
        (ToolSchema("weather", "Asks.", WEATHER),),
        dialect="messages",
        model="policy",
        max_tokens=9,
        stop=("a", "b"),
        stream=True,
        thoughts=False,
        ignored=("temperature",),
    )


def test_what_has_no_bearing_is_listed() -> None:
    harmless: dict[str, Any] = (
        {"temperature": 0.2, "top_p": 0.9, "seed": 3, "user": "me", "metadata": {"run": "1"}}
        | {"store": False, "service_tier": "auto", "reasoning_effort": "low", "verbosity": "low"}
        | {"prompt_cache_key": "k", "safety_identifier": "s", "presence_penalty": 0}
    )
    assert set(read("chat_completions", **harmless).ignored) == set(harmless)
    strict = tool("chat_completions", "weather", strict=True)
    assert read("chat_completions", tools=[strict]).ignored == ("strict",)


def test_a_request_as_codex_sends_it() -> None:
    request = read(
        "responses",
        instructions="You are a coding agent.",
        tools=[{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}],
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


def test_a_request_as_claude_code_sends_it() -> None:
    billing = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"
    request = read(
        "messages",
        {"role": "user", "content": [part("Hello.", **CACHE)]},
        system=[part(billing), part("You are an agent.", **CACHE), part("Be brief.", **CACHE)],
        tools=[tool("messages", "weather", eager_input_streaming=True)],
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "medium"},
        temperature=1,
        stream=True,
    )
    system = Message("system", "You are an agent.\nBe brief.")
    assert request.messages == (system, Message("user", "Hello."))
    assert request.thoughts
    assert set(request.ignored) == {
        *("temperature", "metadata", "x-anthropic-billing-header", "cache_control", "effort"),
        *("eager_input_streaming", "context_management", "thinking"),
    }


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "disabled"}, False),
    ],
)
def test_thoughts_are_shown_to_agents_that_ask_for_them(thinking: Any, shown: bool) -> None:
    request = read("messages", thinking=thinking)
    assert request.thoughts is shown
    kinds = [block["type"] for block in messages.body(request, CALLING)["content"]]
    assert kinds == ["thinking"] * shown + ["text", "tool_use", "tool_use"]


AUTO = {"type": "auto", "disable_parallel_tool_use": False}
EMPTY: dict[str, dict[str, Any]] = {
    "chat_completions": {"response_format": {"type": "text"}, "modalities": ["text"]}
    | {"parallel_tool_calls": True, "tool_choice": "auto", "audio": None, "n": 1, "tools": []}
    | {"functions": [], "logprobs": False, "stream": False, "stop": None, "max_tokens": None}
    | {"logit_bias": {}},
    "responses": dict.fromkeys(("previous_response_id", "conversation", "prompt"))
    | {"background": False, "include": [], "truncation": "disabled", "tools": []}
    | {"text": {"format": {"type": "text"}}, "top_logprobs": 0},
    "messages": {"mcp_servers": [], "container": None, "tools": [], "tool_choice": AUTO}
    | {"context_management": {"edits": []}, "stream": False},
}


@by_dialect
def test_what_is_as_without_it_is_taken(dialect: str) -> None:
    assert read(dialect, **EMPTY[dialect]) == read(dialect)
    none: Any = {"type": "none"} if dialect == "messages" else "none"
    assert read(dialect, tool_choice=none) == read(dialect)


def test_halves_of_surrogate_pairs_do_not_get_in() -> None:
    call = chat_call("c1", "weather", '{"a": ["\\ud800"]}')
    said = {"role": "user", "content": "\ud800"}, {"role": "assistant", "tool_calls": [call]}
    request = read("chat_completions", *said, model="\udfff")
    assert [message.text for message in request.messages] == ["?", ""]
    assert request.messages[1].calls[0].arguments == {"a": ["?"]}
    assert request.model == "?"


def test_tools_in_a_namespace_are_called_by_its_name_and_theirs() -> None:
    weather, clock = (tool("responses", name, description="It.") for name in ("weather", "clock"))
    space = {"type": "namespace", "name": "sky", "description": "Sky.", "tools": [weather, clock]}
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a": 1}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "18"}
    request = read("responses", USER, {**call, "namespace": "sky"}, result, tools=[space, clock])
    assert [(one.name, one.description) for one in request.tools] == [
        *(("sky__weather", "Sky.\n\nIt."), ("sky__clock", "It."), ("clock", "It."))
    ]
    assert request.messages[1].calls == (ToolCall("sky__weather", {"a": 1}, "c1"),)
    calls = (ToolCall("sky__clock", {}, "call_1"), ToolCall("clock", {}, "call_2"))
    reply = replace(PLAIN, choices=(Choice("", calls=calls, ending="calls"),))
    first, other = responses.body(request, reply)["output"]
    assert (first["namespace"], first["name"]) == ("sky", "clock")
    assert (other.get("namespace"), other["name"]) == (None, "clock")
