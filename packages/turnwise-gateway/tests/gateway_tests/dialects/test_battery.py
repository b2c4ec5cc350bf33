"""What the gateway answers, in every dialect: of the shape that the clients publish, and with the
meaning that the reply has; calls and their results are matched by id, and by order where ids are
alike.

Clients build their types without checking, so a missing field would not be seen by talking to them.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from pydantic import TypeAdapter

from gateway_tests.dialects.serving import (
    CALLING,
    CHOICES,
    PLAIN,
    SILENT,
    TWO,
    WEATHER,
    check_refused,
)
from gateway_tests.dialects.speaking import (
    ALL,
    ONE_TOOL,
    body,
    by_dialect,
    data,
    pieced,
    told,
    tool,
    written,
)
from turnwise.chat.endpoint import AskedCall, ChatTurn
from turnwise.types import ToolCall
from turnwise_gateway.endpoints import _choice
from turnwise_gateway.rendering import continuation
from turnwise_gateway.requests import (
    Choice,
    Message,
    RefusedError,
    Reply,
    Request,
    ToolSchema,
)

SHAPES: dict[str, tuple[Any, Any]] = {
    "chat_completions": (openai.types.chat.ChatCompletion, openai.types.chat.ChatCompletionChunk),
    "responses": (openai.types.responses.Response, openai.types.responses.ResponseStreamEvent),
    "messages": (anthropic.types.Message, anthropic.types.RawMessageStreamEvent),
}
"""The types of a reply as a whole, and of its events."""
IDS = {"chat_completions": "chatcmpl-", "responses": "resp_", "messages": "msg_"}
ENDINGS = {
    "chat_completions": {"stop": "stop", "calls": "tool_calls", "length": "length"},
    "responses": {"stop": "completed", "calls": "completed", "length": "incomplete"},
    "messages": {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"},
}
TOOLS = ToolSchema("weather", "", {"type": "object"}), ToolSchema("clock", "", {"type": "object"})
REQUEST = Request((), TOOLS, stream_usage=True)
by_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


def heard(dialect: str, read: Any) -> dict[str, Any]:
    """The meaning of a reply that a client's package has read."""
    found: dict[str, Any] = {"text": "", "thought": "", "calls": [], "id": read.id}
    if dialect == "chat_completions":
        (choice,) = read.choices
        found |= {"text": choice.message.content or "", "ending": choice.finish_reason}
        found["thought"] = getattr(choice.message, "reasoning_content", "")
        asked = choice.message.tool_calls or []
        called = [(one.id, one.function.name, one.function.arguments) for one in asked]
        assert (choice.message.content is None) == bool(asked and not found["text"])
    elif dialect == "responses":
        asked = [one for one in read.output if one.type == "function_call"]
        called = [(one.call_id, one.name, one.arguments) for one in asked]
        thoughts = [one for one in read.output if one.type == "reasoning"]
        found["thought"] = "".join(part.text for one in thoughts for part in one.summary)
        found |= {"text": read.output_text, "ending": read.status}
        ids = [one.id for one in read.output]
        assert len(set(ids)) == len(ids)
        reason = read.incomplete_details and read.incomplete_details.reason
        assert reason == ("max_output_tokens" if read.status == "incomplete" else None)
        words = {one.status for one in read.output if one.type == "message"}
        assert words <= {"completed" if called else read.status}
    else:
        found["text"] = "".join(one.text for one in read.content if one.type == "text")
        found["thought"] = "".join(one.thinking for one in read.content if one.type == "thinking")
        asked = [one for one in read.content if one.type == "tool_use"]
        called = [(one.id, one.name, json.dumps(one.input)) for one in asked]
        found["ending"] = read.stop_reason
    found["calls"] = [(id_, name, json.loads(written)) for id_, name, written in called]
    return found


def numbers(usage: dict[str, Any]) -> tuple[Any, ...]:
    """Tokens read, written, in all, and of thoughts, as far as a dialect says so."""
    read = usage.get("prompt_tokens", usage.get("input_tokens"))
    wrote = usage.get("completion_tokens", usage.get("output_tokens"))
    about = usage.get("completion_tokens_details", usage.get("output_tokens_details")) or {}
    return read, wrote, usage.get("total_tokens"), about.get("reasoning_tokens")


@cache
def shape_of_event(dialect: str, kind: str) -> TypeAdapter[Any]:
    """The shape of an event: of the union's types the one whose `type` is this, if it has one."""
    part = SHAPES[dialect][1]
    if kind:
        (part,) = (
            one
            for one in get_args(get_args(part)[0])
            if get_args(one.model_fields["type"].annotation) == (kind,)
        )
    return TypeAdapter(part)


def expected_ending(dialect: str, choice: Choice) -> str:
    if dialect == "messages" and choice.stopped_at:
        return "stop_sequence"
    return ENDINGS[dialect][choice.ending]


@by_choice
@by_dialect
def test_a_reply_is_what_it_says(dialect: str, choice: Choice) -> None:
    reply = Reply("s1-2", "policy", (choice,), 57, 1_700)
    whole = json.loads(json.dumps(ALL[dialect].body(REQUEST, reply), allow_nan=False))
    read = SHAPES[dialect][0].model_validate(whole, strict=True)
    found = heard(dialect, read)
    assert found["id"] == f"{IDS[dialect]}s1-2"
    assert whole.get("created", whole.get("created_at", 1_700)) == 1_700
    assert (found["text"], found["thought"]) == (choice.text, choice.thought)
    assert found["calls"] == [(one.id, one.name, one.arguments) for one in choice.calls]
    assert found["ending"] == expected_ending(dialect, choice)
    if dialect == "messages":
        assert numbers(whole["usage"])[:2] == (57, choice.sampled)
        assert whole["stop_sequence"] == (choice.stopped_at or None)
    else:
        total = 57 + choice.sampled
        assert numbers(whole["usage"]) == (57, choice.sampled, total, choice.thought_tokens)


REPLIES = {"two": TWO} | {
    name: Reply("s1-2", "policy", (one,), 57, 1_700) for name, one in CHOICES.items()
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@by_dialect
def test_replies_and_events_have_all_fields(dialect: str, reply: Reply) -> None:
    request = replace(REQUEST, logprobs=True)
    SHAPES[dialect][0].model_validate(ALL[dialect].body(request, reply), strict=True)
    for event in data(ALL[dialect].events(request, reply)):
        shape_of_event(dialect, event.get("type", "")).validate_python(event, strict=True)


@by_choice
@by_dialect
def test_the_pieces_of_a_stream_join_to_the_whole(dialect: str, choice: Choice) -> None:
    reply = Reply("s1-2", "policy", (choice,), 57, 1_700)
    found = pieced(dialect, REQUEST, reply)
    assert (found["text"], found["thought"]) == (choice.text, choice.thought)
    joined = [json.loads(one) for _, one in sorted(found["arguments"].items())]
    assert joined == [one.arguments for one in choice.calls]
    assert found["ending"] == expected_ending(dialect, choice)
    assert found["usage"] == ALL[dialect].body(REQUEST, reply)["usage"]


@by_choice
@by_dialect
def test_a_reply_that_comes_back_is_known(dialect: str, choice: Choice) -> None:
    reply = Reply("s1-2", "policy", (choice,), 57, 1_700)
    back = told(dialect, json.loads(json.dumps(ALL[dialect].body(REQUEST, reply))))
    results = [Message("tool", f"{n}", call=one.id) for n, one in enumerate(choice.calls)]
    after = results or [Message("user", "Go on.")]
    said = [*written(dialect, [Message("user", "?")]), *back, *written(dialect, after)]
    _, own, *others = ALL[dialect].read(body(dialect, said)).messages
    assert (own.role, own.text, own.calls) == ("assistant", choice.text, choice.calls)
    assert others == after


@pytest.mark.parametrize("field", ["n", "", "messages"])
@by_dialect
def test_an_error_is_in_the_words_of_the_api(dialect: str, field: str) -> None:
    """It names the field that this dialect has."""
    body = ALL[dialect].error(RefusedError(f"{field}: Too many.", 429, field, "rate_limit_error"))
    message, own = f"{field}: Too many.", field
    if dialect == "responses" and field == "messages":
        message, own = "Too many.", "input"
    about = {} if dialect == "messages" else {"param": own or None, "code": None}
    assert body.pop("error") == {"type": "rate_limit_error", "message": message, **about}
    assert body == ({"type": "error"} if dialect == "messages" else {})


@by_dialect
def test_events_are_named_numbered_and_ended_as_clients_expect(dialect: str) -> None:
    asked = replace(REQUEST, stream_usage=False)
    written = list(ALL[dialect].events(asked, CALLING))
    if dialect == "chat_completions":
        assert written.pop() == "data: [DONE]\n\n"
        assert all(one.startswith("data: ") for one in written)
        assert not any("usage" in one for one in data(iter(written)))
        *others, last = data(ALL[dialect].events(REQUEST, PLAIN))
        assert (last["choices"], last["usage"]["total_tokens"]) == ([], 16)
        assert all(one["usage"] is None for one in others)
        return
    events = list(data(iter(written)))
    assert [one.partition("\n")[0] for one in written] == [f"event: {e['type']}" for e in events]
    ends = events[0]["type"], events[-1]["type"]
    if dialect == "messages":
        assert ends == ("message_start", "message_stop")
        return
    assert ends == ("response.created", "response.completed")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["response"]["output"] == []
    assert events[-1]["response"] == ALL[dialect].body(asked, CALLING)


def kinds(dialect: str, reply: Reply) -> list[str]:
    """The kinds of the parts that a reply has."""
    whole = ALL[dialect].body(REQUEST, reply)
    return [one["type"] for one in whole["output" if dialect == "responses" else "content"]]


def test_a_reply_has_the_parts_that_it_needs() -> None:
    nothing = replace(PLAIN, choices=(Choice(""),))
    assert kinds("responses", CALLING) == ["reasoning", "message", *["function_call"] * 2]
    assert kinds("responses", SILENT) == ["function_call"] * 2
    assert kinds("messages", SILENT) == ["tool_use"] * 2
    assert kinds("messages", nothing) == ["text"]
    assert kinds("responses", nothing) == ["message"]
    asked = body(
        "responses", ["?"], tools=[tool("responses", "f", parameters=WEATHER)], max_output_tokens=9
    )
    asked["input"] = "Hello."
    told = ALL["responses"].body(ALL["responses"].read(asked), CALLING)
    assert (told["max_output_tokens"], told["tools"][0]["parameters"]) == (9, WEATHER)


def test_log_probabilities_are_there_if_they_were_asked_for() -> None:
    asked = replace(REQUEST, logprobs=True)
    first, second = ALL["chat_completions"].body(asked, TWO)["choices"]
    assert [token["token"] for token in first["logprobs"]["content"]] == ["It", " is", " �", "�"]
    listed = {"token": " �", "logprob": -2.0, "bytes": [32, 195], "top_logprobs": []}
    assert first["logprobs"]["content"][2] == listed
    assert (second["finish_reason"], len(second["logprobs"]["content"])) == ("length", 1)


USER = Message("user", "Capitals?")
COUNTRIES = ("France", "Italy", "Norway")


def conversation(dialect: str, ids: Sequence[str], results: Sequence[str]) -> Request:
    """Calls with these ids, and the results of those: what stands in each is its number."""
    calls = [ToolCall("lookup", {"country": COUNTRIES[n]}, one) for n, one in enumerate(ids)]
    told = [Message("tool", f"result {n}", call=one) for n, one in enumerate(results)]
    said = written(dialect, (USER, Message("assistant", "", tuple(calls)), *told))
    return ALL[dialect].read(body(dialect, said, tools=[tool(dialect, "lookup")]))


@by_dialect
@pytest.mark.parametrize(
    ("ids", "results", "matched"),
    [
        (("a", "b"), ("b", "a"), (1, 0)),
        (("a", "a"), ("a", "a"), (0, 1)),
        (("", "", ""), ("", "", ""), (0, 1, 2)),
        (("a", "a", "a_1"), ("a_1", "a", "a"), (2, 0, 1)),
        (("a", "b", "a"), ("a", "a", "b"), (0, 2, 1)),
    ],
)
def test_each_call_has_its_own_result(
    dialect: str, ids: Sequence[str], results: Sequence[str], matched: Sequence[int]
) -> None:
    _, said, *told = conversation(dialect, ids, results).messages
    known = [call.id for call in said.calls]
    assert len(set(known)) == len(ids)
    assert [known.index(one.call) for one in told] == list(matched)
    assert [one.text for one in told] == [f"result {n}" for n in range(len(told))]


@by_dialect
def test_a_result_too_many_or_of_an_older_call_is_refused(dialect: str) -> None:
    places = {
        "chat_completions": ("messages[4].tool_call_id", "messages[4].tool_call_id"),
        "responses": ("input[5].call_id", "input[4].call_id"),
        "messages": ("messages[2].content[2].tool_use_id", "messages[4].content[0].tool_use_id"),
    }
    for results in ("aba", "abc"):
        check_refused(
            lambda results=results: conversation(dialect, "ab", results), places[dialect][0]
        )
    called = Message("assistant", "", (ToolCall("lookup", {}, "old"),))
    result = Message("tool", "1", call="old")
    said = written(dialect, (USER, called, result, Message("assistant", "Well."), result))
    check_refused(lambda: ALL[dialect].read(body(dialect, said)), places[dialect][1])


class Recording:
    """A scaffold that keeps the results which it is to write."""

    def extend(self, *given: Any) -> list[Any]:
        self.results = given[2]
        return []


@by_dialect
def test_the_policy_reads_each_result_at_its_call(dialect: str) -> None:
    _, said, *told = conversation(dialect, "aba", "baa").messages
    scaffold: Any = Recording()
    continuation(scaffold, [], said.calls, told)
    read = [(one.call.arguments["country"], one.content) for one in scaffold.results]
    assert read == [("France", "result 1"), ("Italy", "result 0"), ("Norway", "result 2")]


def test_calls_of_another_model_with_one_id_get_ids_of_their_own() -> None:
    turn = ChatTurn("", calls=tuple(AskedCall("a", "lookup", {"n": n}) for n in range(3)))
    assert [(one.id, one.arguments["n"]) for one in _choice(turn).calls] == [
        *(("a", 0), ("a_1", 1), ("a_2", 2))
    ]


@by_dialect
def test_a_call_may_be_demanded_and_one_of_several_tools_may_not(dialect: str) -> None:
    def read(choice: Any, *tools: str) -> Request:
        offered = [tool(dialect, name) for name in tools]
        said = written(dialect, [USER])
        return ALL[dialect].read(body(dialect, said, tools=offered, tool_choice=choice))

    any_tool: Any = {"type": "any"} if dialect == "messages" else "required"
    one_tool = ONE_TOOL[dialect]
    assert read(any_tool, "a", "b").needs_call
    assert read(one_tool, "a").needs_call
    assert not read({"type": "auto"} if dialect == "messages" else "auto", "a").needs_call
    place = "tool_choice.function.name" if dialect == "chat_completions" else "tool_choice.name"
    check_refused(lambda: read(one_tool, "a", "b"), place)
    with pytest.raises(RefusedError, match=f"{place}: there is no tool 'a' in tools"):
        read(one_tool, "b")
    check_refused(lambda: read(any_tool), "tool_choice")
