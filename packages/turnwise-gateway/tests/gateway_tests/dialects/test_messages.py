"""Anthropic's messages as JSON: what is read, what is refused by which name, what is written."""

import base64
import json
from typing import Any

import pytest

from gateway_tests.dialects.serving import (
    CALLING,
    PNG,
    SILENT,
    WEATHER,
    WORDS,
    check_refused,
)
from turnwise.types import ToolCall
from turnwise_gateway.dialects import messages
from turnwise_gateway.requests import Choice, Message, RefusedError, Reply, Request, ToolSchema

USER = {"role": "user", "content": "How warm is it?"}
TOOL = {"name": "weather", "description": "Asks.", "input_schema": WEATHER}
TEXT = {"type": "text", "text": "One moment."}
CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"a": 1}}
ASSISTANT = {"role": "assistant", "content": [TEXT, CALL]}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "18"}
SOURCE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
IMAGE = {"type": "image", "source": SOURCE}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def read(*given: dict[str, Any], **fields: Any) -> Request:
    return messages.read({"model": "m", "max_tokens": 9, "messages": [*given] or [USER], **fields})


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def test_a_conversation_is_read_block_by_block() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "Er"}
    request = read(
        USER,
        user({"type": "text", "text": "Look:"}, IMAGE, {"type": "text", "text": "!"}),
        {"role": "assistant", "content": [thinking, TEXT, CALL, {**CALL, "id": "c2"}]},
        user(
            RESULT,
            {**RESULT, "tool_use_id": "c2", "content": [TEXT, IMAGE], "is_error": True},
            {"type": "text", "text": "Go on."},
        ),
        {"role": "system", "content": "Be quick."},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, CALL]},
        user({"type": "tool_result", "tool_use_id": "c1"}),
        {"role": "assistant", "content": "18."},
        {"role": "assistant", "content": []},
        USER,
        system="Be brief.",
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("user", "How warm is it?"),
        Message("user", "Look:\n!", images=(PNG,)),
        Message(
            "assistant",
            "One moment.",
            (ToolCall("weather", {"a": 1}, id="c1"), ToolCall("weather", {"a": 1}, id="c2")),
        ),
        Message("tool", "18", call="c1"),
        Message("tool", "Error: One moment.", call="c2", images=(PNG,)),
        Message("user", "Go on."),
        Message("system", "Be quick."),
        Message("assistant", "", (ToolCall("weather", {"a": 1}, id="c1"),)),
        Message("tool", "", call="c1"),
        Message("assistant", "18."),
        Message("assistant", ""),
        Message("user", "How warm is it?"),
    )
    assert request.ignored == ("thinking",)


def test_options_are_read() -> None:
    request = read(tools=[TOOL], stop_sequences=["a", "b"], stream=True, temperature=1)
    assert request == Request(
        (Message("user", "How warm is it?"),),
        (ToolSchema("weather", "Asks.", WEATHER),),
        dialect="messages",
        model="m",
        max_tokens=9,
        stop=("a", "b"),
        stream=True,
        thoughts=False,
        ignored=("temperature",),
    )


def test_a_request_as_claude_code_sends_it() -> None:
    billing = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"
    request = read(
        user({"type": "text", "text": "Hello.", **EPHEMERAL}),
        system=[
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are an agent.", **EPHEMERAL},
            {"type": "text", "text": "Be brief.", **EPHEMERAL},
        ],
        tools=[{**TOOL, "eager_input_streaming": True}],
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "medium"},
        temperature=1,
        stream=True,
    )
    assert request.messages == (
        Message("system", "You are an agent.\nBe brief."),
        Message("user", "Hello."),
    )
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
    request = read(thinking=thinking)
    assert request.thoughts is shown
    kinds = [block["type"] for block in messages.body(request, CALLING)["content"]]
    assert kinds == ["thinking"] * shown + ["text", "tool_use", "tool_use"]


def test_what_is_as_without_it_is_taken() -> None:
    auto = {"type": "auto", "disable_parallel_tool_use": False}
    plain: dict[str, Any] = {"mcp_servers": [], "container": None, "tools": []}
    plain |= {"tool_choice": auto, "context_management": {"edits": []}, "stream": False}
    assert read(**plain) == read()
    assert read(tool_choice={"type": "none"}) == read()


def offered(**fields: Any) -> dict[str, Any]:
    return {"tools": [{**TOOL, **fields}]}


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"n": 2}, "n"),
    "servers": ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    "container": ({"container": "c"}, "container"),
    "thread": ({"thread": {"id": "t"}}, "thread"),
    "compaction": ({"compaction": {"a": 1}}, "compaction"),
    "format": ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    "budget": ({"output_config": {"task_budget": {"a": 1}}}, "output_config.task_budget"),
    "clearing": (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        "context_management.edits[0].type",
    ),
    "thinking": ({"thinking": {"type": "deep"}}, "thinking.type"),
    "choice": ({"tool_choice": {"type": "best"}, "tools": [TOOL]}, "tool_choice"),
    "one tool": ({"tool_choice": {"type": "tool", "name": "weather"}}, "tool_choice"),
    "one call": (
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        "tool_choice.disable_parallel_tool_use",
    ),
    "bound": ({"max_tokens": 0}, "max_tokens"),
    "stop": ({"stop_sequences": [""]}, "stop_sequences"),
    "system": ({"system": [{"type": "image"}]}, "system[0].type"),
    "search": ({"tools": [{"type": "web_search_20260318"}]}, "tools[0].type"),
    "bash": ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    "examples": (offered(input_examples=[{}]), "tools[0].input_examples"),
    "schema": (offered(input_schema=[1]), "tools[0].input_schema"),
    "extra": (offered(cost=3), "tools[0].cost"),
}
MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"role": "tool", "content": ""}, "messages[2].role"),
    "begun": ({"role": "assistant", "content": "It is"}, "messages[2].role"),
    "content": ({"role": "user"}, "messages[2].content"),
    "empty": (user(), "messages[2].content"),
    "unknown": ({**USER, "name": "Ada"}, "messages[2].name"),
    "block": (user("a"), "messages[2].content[0]"),
    "document": (user({"type": "document"}), "messages[2].content[0].type"),
    "found": (user({"type": "search_result"}), "messages[2].content[0].type"),
    "server": (
        {"role": "assistant", "content": [{"type": "server_tool_use"}]},
        "messages[2].content[0].type",
    ),
    "late": ({"role": "assistant", "content": [CALL, TEXT]}, "messages[2].content[1].type"),
    "picture": ({"role": "system", "content": [IMAGE]}, "messages[2].content[0].type"),
    "link": (
        user({"type": "image", "source": {"type": "url", "url": "x"}}),
        "messages[2].content[0].source.type",
    ),
    "jpeg": (
        user({"type": "image", "source": {**SOURCE, "media_type": "image/jpeg"}}),
        "messages[2].content[0].source.media_type",
    ),
    "base64": (
        user({"type": "image", "source": {**SOURCE, "data": "?"}}),
        "messages[2].content[0].source.data",
    ),
    "orphan": (user({**RESULT, "tool_use_id": "c9"}), "messages[2].content[0].tool_use_id"),
    "reference": (
        user({**RESULT, "content": [{"type": "tool_reference"}]}),
        "messages[2].content[0].content[0].type",
    ),
    "toolset": (user({**RESULT, "toolset_name": "t"}), "messages[2].content[0].toolset_name"),
    "mark": (user({**RESULT, "is_error": "yes"}), "messages[2].content[0].is_error"),
    "input": (
        {"role": "assistant", "content": [{**CALL, "input": [1]}]},
        "messages[2].content[0].input",
    ),
    "caller": (
        {"role": "assistant", "content": [{**CALL, "caller": {"type": "code_execution"}}]},
        "messages[2].content[0].caller.type",
    ),
}


@pytest.mark.parametrize(("fields", "field"), OPTIONS.values(), ids=OPTIONS)
def test_options_are_refused_by_name(fields: dict[str, Any], field: str) -> None:
    check_refused(lambda: read(**fields), field)


@pytest.mark.parametrize(("message", "field"), MESSAGES.values(), ids=MESSAGES)
def test_messages_are_refused_by_name(message: dict[str, Any], field: str) -> None:
    check_refused(lambda: read(USER, ASSISTANT, message), field)


def test_a_request_without_messages_is_refused() -> None:
    with pytest.raises(RefusedError, match="messages: must have at least one"):
        messages.read({"model": "m", "system": "Be brief.", "messages": []})


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(RefusedError, match="the body: must be an object"):
        messages.read([USER])  # type: ignore[arg-type]


def test_a_reply_without_words_is_its_calls() -> None:
    blocks = messages.body(read(), SILENT)["content"]
    assert [block["type"] for block in blocks] == ["tool_use", "tool_use"]
    nothing = Reply("r", "m", (Choice(""),), 1, 2)
    assert messages.body(read(), nothing)["content"] == [{"type": "text", "text": ""}]


def test_events_are_named_and_come_in_pieces() -> None:
    written = list(messages.events(read(stream=True), CALLING))
    names, data = zip(*(event.rstrip("\n").split("\n") for event in written), strict=True)
    events = [json.loads(line.removeprefix("data: ")) for line in data]
    assert [f"event: {event['type']}" for event in events] == list(names)
    assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
    texts = [event["delta"]["text"] for event in events if "text" in event.get("delta", ())]
    assert len(texts) > 2
    assert "".join(texts) == WORDS


def test_a_count_and_an_error_in_the_words_of_the_api() -> None:
    assert messages.counted(5) == {"input_tokens": 5}
    told = messages.error(RefusedError("n: no.", field="n"))
    assert told == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "n: no."},
    }
