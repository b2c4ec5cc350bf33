"""Calls and their results in every dialect: matched by id, and by order where ids are alike."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gateway_tests.dialects.serving import PLAIN, check_refused
from gateway_tests.dialects.speaking import ALL, body, tool, written
from turnwise.chat.endpoint import AskedCall, ChatTurn
from turnwise.types import ToolCall
from turnwise_gateway.dialects.registry import DIALECTS
from turnwise_gateway.endpoints import _choice
from turnwise_gateway.rendering import continuation
from turnwise_gateway.requests import Message, RefusedError, Request

USER = Message("user", "Capitals?")
COUNTRIES = ("France", "Italy", "Norway")
by_dialect = pytest.mark.parametrize("dialect", ALL)


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


CHOICES = {
    "chat_completions": ("required", {"type": "function", "function": {"name": "a"}}),
    "responses": ("required", {"type": "function", "name": "a"}),
    "messages": ({"type": "any"}, {"type": "tool", "name": "a"}),
}


@by_dialect
def test_a_call_may_be_demanded_and_one_of_several_tools_may_not(dialect: str) -> None:
    def read(choice: Any, *tools: str) -> Request:
        offered = [tool(dialect, name) for name in tools]
        said = written(dialect, [USER])
        return ALL[dialect].read(body(dialect, said, tools=offered, tool_choice=choice))

    any_tool, one_tool = CHOICES[dialect]
    assert read(any_tool, "a", "b").needs_call
    assert read(one_tool, "a").needs_call
    assert not read({"type": "auto"} if dialect == "messages" else "auto", "a").needs_call
    place = "tool_choice.function.name" if dialect == "chat_completions" else "tool_choice.name"
    check_refused(lambda: read(one_tool, "a", "b"), place)
    check_refused(lambda: read(any_tool), "tool_choice")


def test_the_paths_are_those_of_the_services() -> None:
    assert sorted(DIALECTS) == ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
    assert {dialect.PATH: dialect for dialect in DIALECTS.values()} == DIALECTS


@by_dialect
def test_a_request_knows_its_dialect(dialect: str) -> None:
    bound = {"max_output_tokens" if dialect == "responses" else "max_tokens": 5}
    request = ALL[dialect].read(body(dialect, written(dialect, [USER])) | bound)
    assert (request.dialect, request.max_tokens) == (dialect, 5)
    assert request.messages == (USER,)


@by_dialect
def test_what_all_dialects_refuse_is_refused_by_name(dialect: str) -> None:
    offered = tool(dialect, "weather")
    none: Any = {"type": "none"} if dialect == "messages" else "none"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"model": None}, "model"),
        ({"tools": [offered, offered]}, "tools[1].name"),
        ({"tools": [offered], "tool_choice": none}, "tool_choice"),
    ]
    place = "tools[0].function" if dialect == "chat_completions" else "tools[0]"
    names = ("(", "a.b", "<x>", "x" * 129, "")
    refused += [({"tools": [tool(dialect, name)]}, f"{place}.name") for name in names]
    for name, value in (("defer_loading", True), ("allowed_callers", ["programmatic"])):
        refused.append(({"tools": [tool(dialect, "weather", **{name: value})]}, f"{place}.{name}"))
    said = written(dialect, [USER])
    for fields, field in refused:
        check_refused(lambda fields=fields: ALL[dialect].read(body(dialect, said) | fields), field)


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
    place = {
        "chat_completions": "messages[1].tool_calls[0].function.arguments",
        "responses": "input[1].arguments",
        "messages": "messages[1].content[0].input",
    }[dialect]
    if dialect == "chat_completions":
        said[1]["tool_calls"][0]["function"]["arguments"] = arguments
    elif dialect == "responses":
        said[1]["arguments"] = arguments
    else:
        said[1]["content"][0]["input"] = arguments
    check_refused(lambda: ALL[dialect].read(body(dialect, said)), place)


@by_dialect
def test_a_schema_with_a_number_that_json_lacks_is_refused(dialect: str) -> None:
    offered = tool(dialect, "clock")
    holder = offered.get("function", offered)
    name = "input_schema" if dialect == "messages" else "parameters"
    holder[name] = {"type": "object", "maximum": float("inf")}
    place = f"tools[0].function.{name}" if "function" in offered else f"tools[0].{name}"
    said = written(dialect, [Message("user", "?")])
    check_refused(lambda: ALL[dialect].read(body(dialect, said, tools=[offered])), place)


ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    0.5,
    "",
    "\ud800",
    [],
    [None],
    [[]],
    {},
    {"": 1},
)


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
    said = written(dialect, [USER, CALLING, Message("tool", "1", call="c")])
    choice = CHOICES[dialect][1]
    whole = body(dialect, said, tools=[tool(dialect, "a")], tool_choice=choice, stream=False)
    for one in spoilt(whole, odd):
        answer, refused = answered(dialect, one)
        json.dumps(answer, ensure_ascii=False).encode()
        assert refused is None or refused.status == 400
        assert refused is None or refused.field or one is odd
