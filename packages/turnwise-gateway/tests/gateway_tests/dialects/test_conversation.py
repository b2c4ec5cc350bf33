"""Calls and their results in every dialect: matched by id, and by order where ids are alike."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway_tests.dialects.serving import check_refused
from gateway_tests.dialects.speaking import ALL, ONE_TOOL, body, by_dialect, tool, written
from turnwise.chat.endpoint import AskedCall, ChatTurn
from turnwise.types import ToolCall
from turnwise_gateway.dialects.registry import DIALECTS
from turnwise_gateway.endpoints import _choice
from turnwise_gateway.rendering import continuation
from turnwise_gateway.requests import Message, Request

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
    check_refused(lambda: read(any_tool), "tool_choice")


def test_the_paths_are_those_of_the_services() -> None:
    assert sorted(DIALECTS) == ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
    assert {dialect.PATH: dialect for dialect in DIALECTS.values()} == DIALECTS
