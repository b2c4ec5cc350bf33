"""Turns of a model with tools, as endpoints write them."""

import asyncio
import json
from typing import Any

import pytest

from tests.chat_server import serving
from turnwise.chat.endpoint import AskedCall, ChatEndpoint, ChatTurn, LongError
from turnwise.errors import InfrastructureError

BODY = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": []}


def asked(identity: str, name: str, arguments: str | None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": identity, "type": "function", "function": function, "signature": "s"}


def turn_of(answer: str | int, **options: Any) -> ChatTurn:
    with serving(lambda body, number: "") as server:
        server.failures = [answer]
        endpoint = ChatEndpoint(server.url, "m", attempts=1, **options)
        return asyncio.run(endpoint.ask_for_turn(BODY))


def completion(message: dict[str, Any], **choice: Any) -> str:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return json.dumps({"choices": [{"message": message, **choice}], "usage": usage})


def test_words_without_thinking() -> None:
    turn = turn_of(completion({"content": "<think>hm</think> Paris"}))
    assert turn == ChatTurn("Paris", read=7, written=3)
    assert turn_of(completion({"content": "\ud800!"})).text == "?!"


def test_calls_and_what_is_no_object() -> None:
    calls = [
        asked("a", "look", '{"x": 1}'),
        asked("b", "wait", ""),
        asked("c", "look", "[1]"),
        asked("d", "look", '{"x": '),
        asked("e", "wait", None),
        asked("f", "look", '{"x": NaN}'),
        asked("g", "look", '{"x": "\\ud800"}'),
    ]
    turn = turn_of(completion({"content": None, "tool_calls": calls}))
    assert turn.text == ""
    assert turn.calls == (
        AskedCall("a", "look", {"x": 1}),
        AskedCall("b", "wait", {}),
        AskedCall("c", "look", None),
        AskedCall("d", "look", None),
        AskedCall("e", "wait", {}),
        AskedCall("f", "look", None),
        AskedCall("g", "look", None),
    )
    assert list(turn.asked) == calls


def test_turns_that_are_cut_off_or_empty_are_turns() -> None:
    assert turn_of(completion({"content": "so"}, finish_reason="length")).cut_off
    assert turn_of(completion({"content": ""})).text == ""
    assert turn_of(json.dumps({"choices": [{"message": {}}]})) == ChatTurn("")


@pytest.mark.parametrize(
    "answer",
    [
        "hello",
        "{}",
        '{"choices": []}',
        '{"choices": [{"message": "hello"}]}',
        completion({"tool_calls": [{"id": "a"}]}),
    ],
)
def test_answers_that_are_none(answer: str) -> None:
    with pytest.raises(InfrastructureError, match="it does not answer as /chat/completions does"):
        turn_of(answer)


def refuse(monkeypatch: pytest.MonkeyPatch, status: int, **content: Any) -> list[Any]:
    """Have every request refused; the list of those that came."""
    import httpx2

    came: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        came.append(request)
        return httpx2.Response(status, **content)

    made, transport = httpx2.AsyncClient, httpx2.MockTransport(answer)
    monkeypatch.setattr(
        httpx2, "AsyncClient", lambda **given: made(transport=transport, headers=given["headers"])
    )
    return came


def test_conversations_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"code": "context_length_exceeded", "message": "too much"}
    refuse(monkeypatch, 400, json={"error": error})
    with pytest.raises(LongError, match="context_length_exceeded"):
        asyncio.run(ChatEndpoint("http://h/v1", "m").ask_for_turn(BODY))


def test_a_key_is_never_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-secret")
    came = refuse(monkeypatch, 401, text="wrong key sk-secret")
    endpoint = ChatEndpoint("http://h/v1", "m", key_variable="A_KEY")
    with pytest.raises(InfrastructureError, match="401 wrong key KEY") as raised:
        asyncio.run(endpoint.ask_for_turn(BODY))
    assert [request.headers["Authorization"] for request in came] == ["Bearer sk-secret"]
    assert "sk-secret" not in str(raised.value)
