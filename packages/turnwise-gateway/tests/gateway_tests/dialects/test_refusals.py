"""What no dialect takes is refused by the name of its place, and whatever is odd is not a bug."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway_tests.dialects.serving import PLAIN, PNG, check_refused
from gateway_tests.dialects.speaking import ALL, INPUT, ONE_TOOL, body, by_dialect, tool, written
from turnwise.types import ToolCall
from turnwise_gateway.dialects import messages, responses
from turnwise_gateway.requests import Message, RefusedError

USER = {"role": "user", "content": "How warm is it?"}
BASE64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
Rows = list[tuple[str, Any]]
CHAT_OPTIONS: Rows = [
    ("grammar", "root"),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {}}),
    ("modalities", ["text", "audio"]),
    ("parallel_tool_calls", False),
    *(("n", given) for given in (True, 0, 129)),
    ("max_tokens", 0),
    ("stop", [1]),
    ("stop", ""),
    ("stream", "yes"),
    ("model", 5),
    ("model", None),
    ("tools", {}),
    ("response_format.type", {"type": "json_object"}),
    ("stream_options.pace", {"pace": 1}),
    ("tools[0]", ["weather"]),
    ("tools[0].type", [{"type": "custom", "custom": {}}]),
    ("tools[0].function", [{"type": "function"}]),
    (
        "tools[0].function.parameters.type",
        [tool("chat_completions", "f", parameters={"type": "a"})],
    ),
    ("tools[0].function.cost", [tool("chat_completions", "f", cost=3)]),
]
"""Places in a body, and a value of the field that they begin with."""
RESPONSES_OPTIONS: Rows = [
    ("n", 2),
    ("model", None),
    ("include", ["message.output_text.logprobs"]),
    ("truncation", "auto"),
    ("text.format.type", {"format": {"type": "json_schema"}}),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "name": "weather"}),
    ("max_output_tokens", "7"),
    ("instructions", ["a"]),
    *(("tools[0].type", [{"type": kind}]) for kind in ("web_search", "custom", "local_shell")),
    (
        "tools[0].tools[0].type",
        [{"type": "namespace", "name": "sky", "tools": [{"type": "custom"}]}],
    ),
    ("tools[0].parameters", [tool("responses", "f", parameters="{}")]),
    ("tools[0].cost", [tool("responses", "f", cost=3)]),
]
MESSAGES_OPTIONS: Rows = [
    ("n", 2),
    ("model", None),
    ("output_config.format", {"format": {"type": "json_schema"}}),
    ("output_config.task_budget", {"task_budget": {"a": 1}}),
    ("context_management.edits[0].type", {"edits": [{"type": "clear_tool_uses_20250919"}]}),
    ("thinking.type", {"type": "deep"}),
    ("tool_choice", {"type": "best"}),
    ("tool_choice", {"type": "tool", "name": "weather"}),
    ("tool_choice.disable_parallel_tool_use", {"type": "auto", "disable_parallel_tool_use": True}),
    ("max_tokens", 0),
    ("stop_sequences", [""]),
    ("system[0].type", [{"type": "image"}]),
    *(("tools[0].type", [{"type": kind, "name": "b"}]) for kind in ("web_search_1", "bash_2")),
    ("tools[0].input_examples", [tool("messages", "f", input_examples=[{}])]),
    ("tools[0].input_schema", [tool("messages", "f", input_schema=[1])]),
    ("tools[0].cost", [tool("messages", "f", cost=3)]),
]


def holding(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [*content]}


def chat_image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def chat_call(**function: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", **function}}
    return {"role": "assistant", "tool_calls": [call]}


ITEM_IMAGE = {"type": "input_image", "image_url": URL}
ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
SOURCE = {"type": "base64", "media_type": "image/png", "data": BASE64}
TEXT = {"type": "text", "text": "One moment."}
CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "18"}


def block_image(**source: Any) -> dict[str, Any]:
    return holding({"type": "image", "source": {**SOURCE, **source}})


CHAT_MESSAGES: Rows = [
    ("role", {"role": "function", "content": ""}),
    ("content", {"role": "user"}),
    ("content", {"role": "user", "content": 5}),
    ("content[0]", holding("a")),
    *(("content[0].type", holding(one)) for one in ({}, {"type": "input_audio"}, {"type": "file"})),
    ("content[0].type", holding(chat_image(URL), role="assistant")),
    *(
        ("content[0].image_url.url", holding(chat_image(url)))
        for url in (
            "https://a.example/b.png",
            *(
                f"data:image/{kind};base64,{data}"
                for kind, data in (("jpeg", "AAAA"), ("png", "?"))
            ),
            "data:image/png;base64,AAAA",
        )
    ),
    ("name", {**USER, "name": "Ada"}),
    ("mood", {**USER, "mood": "good"}),
    ("tool_call_id", {"role": "tool", "tool_call_id": "c9", "content": ""}),
    ("refusal", {"role": "assistant", "content": "", "refusal": "No."}),
    *(
        ("tool_calls[0].function.arguments", chat_call(**given))
        for given in ({"arguments": "{"}, {"arguments": "[]"}, {"arguments": "[" * 99_999}, {})
    ),
    ("tool_calls[0].type", {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}),
]
"""Places in the last message of a conversation, and the message."""
RESPONSES_ITEMS: Rows = [
    ("type", {"type": "item_reference", "id": "msg_1"}),
    ("type", {"type": "custom_tool_call", "call_id": "c"}),
    ("type", {"type": "web_search_call", "id": "w"}),
    ("role", {"role": "tool", "content": ""}),
    ("content", {"role": "user"}),
    ("content[0].type", holding({"type": "input_file"})),
    ("content[0].type", holding({"type": "refusal", "refusal": "No."}, role="assistant")),
    ("content[0].type", holding(ITEM_IMAGE, role="system")),
    ("content[0].file_id", holding({**ITEM_IMAGE, "file_id": "f"})),
    ("content[0].image_url", holding({**ITEM_IMAGE, "image_url": "https://a.example/b.png"})),
    ("mood", {**USER, "mood": "good"}),
    ("call_id", {"type": "function_call_output", "call_id": "c1", "output": "18"}),
    ("arguments", {**ITEM_CALL, "arguments": "{"}),
    ("caller.type", {**ITEM_CALL, "caller": {"type": "program"}}),
]
MESSAGES_MESSAGES: Rows = [
    ("role", {"role": "tool", "content": ""}),
    ("role", {"role": "assistant", "content": "It is"}),
    ("content", {"role": "user"}),
    ("content", holding()),
    ("name", {**USER, "name": "Ada"}),
    ("content[0]", holding("a")),
    *(("content[0].type", holding({"type": kind})) for kind in ("document", "search_result")),
    ("content[0].type", holding({"type": "server_tool_use"}, role="assistant")),
    ("content[1].type", holding(CALL, TEXT, role="assistant")),
    ("content[0].type", holding({"type": "image", "source": SOURCE}, role="system")),
    ("content[0].source.type", holding({"type": "image", "source": {"type": "url", "url": "x"}})),
    ("content[0].source.media_type", block_image(media_type="image/jpeg")),
    ("content[0].source.data", block_image(data="?")),
    ("content[0].tool_use_id", holding({**RESULT, "tool_use_id": "c9"})),
    ("content[0].content[0].type", holding({**RESULT, "content": [{"type": "tool_reference"}]})),
    ("content[0].toolset_name", holding({**RESULT, "toolset_name": "t"})),
    ("content[0].is_error", holding({**RESULT, "is_error": "yes"})),
    ("content[0].input", holding({**CALL, "input": [1]}, role="assistant")),
    ("content[0].caller.type", holding({**CALL, "caller": {"type": "a"}}, role="assistant")),
]
OPTIONS = {
    "chat_completions": CHAT_OPTIONS,
    "responses": RESPONSES_OPTIONS,
    "messages": MESSAGES_OPTIONS,
}
SAID: dict[str, tuple[list[Any], Rows]] = {
    "chat_completions": ([USER], CHAT_MESSAGES),
    "responses": ([USER], RESPONSES_ITEMS),
    "messages": ([USER, holding(TEXT, CALL, role="assistant")], MESSAGES_MESSAGES),
}
"""What stands before the message."""
ROWS = [
    pytest.param(
        name,
        place,
        {place.partition(".")[0].partition("[")[0]: value},
        [USER],
        id=f"{name}-{place}",
    )
    for name, rows in OPTIONS.items()
    for place, value in [*rows, *dict.fromkeys(ALL[name].REFUSED, "x").items()]
] + [
    pytest.param(name, f"{INPUT[name]}[{len(before)}].{place}", {}, [*before, said])
    for name, (before, rows) in SAID.items()
    for place, said in rows
]


@pytest.mark.parametrize(("dialect", "place", "fields", "said"), ROWS)
def test_what_is_refused_is_named(
    dialect: str, place: str, fields: dict[str, Any], said: list[Any]
) -> None:
    check_refused(lambda: ALL[dialect].read(body(dialect, said) | fields), place)


@by_dialect
def test_what_all_dialects_refuse_is_refused_by_name(dialect: str) -> None:
    offered = tool(dialect, "weather")
    none: Any = {"type": "none"} if dialect == "messages" else "none"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"tools": [offered, offered]}, "tools[1].name"),
        ({"tools": [offered], "tool_choice": none}, "tool_choice"),
        *(({INPUT[dialect]: nothing}, INPUT[dialect]) for nothing in (None, [])),
    ]
    place = "tools[0].function" if dialect == "chat_completions" else "tools[0]"
    names = ("(", "a.b", "<x>", "x" * 129, "")
    refused += [({"tools": [tool(dialect, name)]}, f"{place}.name") for name in names]
    for name, value in (("defer_loading", True), ("allowed_callers", ["programmatic"])):
        refused.append(({"tools": [tool(dialect, "weather", **{name: value})]}, f"{place}.{name}"))
    schema: dict[str, Any] = {"type": "object", "maximum": float("inf")}
    name = "input_schema" if dialect == "messages" else "parameters"
    refused.append(({"tools": [tool(dialect, "f", **{name: schema})]}, f"{place}.{name}"))
    for fields, field in refused:
        check_refused(
            lambda fields=fields: ALL[dialect].read(body(dialect, [USER]) | fields), field
        )


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(RefusedError, match="messages: must have at least one"):
        messages.read({"model": "m", "system": "Be brief.", "messages": []})
    with pytest.raises(RefusedError, match="the body: must be an object"):
        messages.read([USER])
    with pytest.raises(RefusedError, match=r"'web_search' is not supported.*switch this tool off"):
        responses.read(body("responses", [USER], tools=[{"type": "web_search"}]))
    both = {"max_tokens": 1, "max_completion_tokens": 1}
    with pytest.raises(RefusedError, match="stands beside max_completion_tokens"):
        ALL["chat_completions"].read(body("chat_completions", [USER], **both))


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(2_000):
        schema = {"type": "object", "properties": {"a": schema}}
    offered = tool("chat_completions", "f", parameters=schema)
    with pytest.raises(RefusedError, match=r"^tools\[0\].function.parameters: is nested more than"):
        ALL["chat_completions"].read(body("chat_completions", [USER], tools=[offered]))


CALLING = Message("assistant", "", (ToolCall("clock", {}, "c"),))
BAD_ARGUMENTS: dict[str, Any] = {
    "not a number": {"x": float("nan")},
    "infinite": {"x": [float("inf")]},
    "twice": '{"x": 1, "x": 2}',
    "constant": '{"x": NaN}',
    "too large": '{"x": 1e999}',
    "list": "[1]",
    "text": '"x"',
    "half": '{"x": ',
}


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
@by_dialect
def test_arguments_that_are_no_json_are_refused(dialect: str, arguments: Any) -> None:
    said = written(dialect, [Message("user", "?"), CALLING, Message("tool", "1", call="c")])
    holder, place = said[1], "arguments"
    if dialect == "chat_completions":
        holder, place = holder["tool_calls"][0]["function"], "tool_calls[0].function.arguments"
    elif dialect == "messages":
        holder, place = holder["content"][0], "content[0].input"
    holder[place.rpartition(".")[2]] = arguments
    asked = body(dialect, said)
    check_refused(lambda: ALL[dialect].read(asked), f"{INPUT[dialect]}[1].{place}")


ODD = (None, True, 0, -1, 10**400, 0.5, "", "\ud800", [], [None], [[]], {}, {"": 1})


def spoilt(value: Any, odd: Any) -> Iterator[Any]:
    """A value with something odd in each of its places."""
    yield odd
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from ({**value, key: other} for other in spoilt(inner, odd))
    for place, inner in enumerate(value if isinstance(value, list) else ()):
        yield from ([*value[:place], other, *value[place + 1 :]] for other in spoilt(inner, odd))


def answered(dialect: str, asked: Any) -> tuple[Any, RefusedError | None]:
    """The body of the answer to a request's, and the refusal if it is one."""
    try:
        return ALL[dialect].body(ALL[dialect].read(asked), PLAIN), None
    except RefusedError as refused:
        return ALL[dialect].error(refused), refused


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@by_dialect
def test_whatever_is_odd_is_read_or_refused_with_a_place(dialect: str, odd: Any) -> None:
    said = written(dialect, [Message("user", "?"), CALLING, Message("tool", "1", call="c")])
    choice = ONE_TOOL[dialect]
    whole = body(dialect, said, tools=[tool(dialect, "a")], tool_choice=choice, stream=False)
    for one in spoilt(whole, odd):
        answer, refused = answered(dialect, one)
        json.dumps(answer, ensure_ascii=False).encode()
        assert refused is None or refused.status == 400
        assert refused is None or refused.field or one is odd
