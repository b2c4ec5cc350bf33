"""Messages as the package `anthropic` sends and understands them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import pytest

from gateway_tests.dialects.serving import (
    CALLING,
    CALLS,
    CUT_OFF,
    PLAIN,
    SILENT,
    THOUGHT,
    WEATHER,
    WORDS,
    Served,
)
from turnwise_gateway.dialects import messages
from turnwise_gateway.requests import Message, Reply, Request

USER = {"role": "user", "content": "How warm is it?"}
TOOLS = [{"name": name, "input_schema": WEATHER} for name in ("weather", "clock")]
THINKING = {"type": "adaptive"}
ASKING = {"model": "policy", "max_tokens": 99, "messages": [USER], "tools": TOOLS}


def talk(reply: Reply, ask: Callable[[Any], Awaitable[Any]]) -> tuple[Any, list[Request]]:
    """The result of asking a client, and the requests that were read."""
    served = Served(messages, reply)

    async def run() -> Any:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(served.app))
        async with anthropic.AsyncAnthropic(
            api_key="none", base_url="http://gateway", http_client=http, max_retries=0
        ) as client:
            return await ask(client)

    return asyncio.run(run()), served.requests


async def streamed(client: Any, **fields: Any) -> Any:
    """The events, and the message that the package puts together."""
    async with client.messages.stream(**{**ASKING, **fields}) as stream:
        events = [event async for event in stream]
        return events, await stream.get_final_message()


def check(message: Any) -> None:
    thinking, text, *calls = message.content
    assert (thinking.thinking, text.text) == (THOUGHT, WORDS)
    assert [call.id for call in calls] == ["call_1", "call_2"]
    assert [call.name for call in calls] == ["weather", "clock"]
    assert [call.input for call in calls] == [call.arguments for call in CALLS]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (57, 31)


def test_a_reply_with_thoughts_and_calls() -> None:
    message, requests = talk(
        CALLING, lambda client: client.messages.create(**ASKING, thinking=THINKING)
    )
    check(message)
    assert [tool.name for tool in requests[0].tools] == ["weather", "clock"]
    assert requests[0].max_tokens == 99


def test_a_streamed_reply_with_thoughts_and_calls() -> None:
    (events, message), requests = talk(CALLING, lambda client: streamed(client, thinking=THINKING))
    check(message)
    assert requests[0].stream
    kinds = [event.type for event in events]
    assert min(kinds.count("text"), kinds.count("thinking"), kinds.count("input_json")) > 2
    assert [event.snapshot for event in events if event.type == "text"][-1] == WORDS


def test_a_reply_that_was_cut_off() -> None:
    (_, message), _ = talk(CUT_OFF, streamed)
    assert (message.stop_reason, message.content[0].text) == ("max_tokens", "It is")


def test_tokens_are_counted_without_a_bound() -> None:
    count, requests = talk(
        PLAIN,
        lambda client: client.messages.count_tokens(
            model="policy", messages=[USER], tools=TOOLS, system="Be brief."
        ),
    )
    assert count.input_tokens == 12
    assert requests[0].messages[0] == Message("system", "Be brief.")


def test_the_beta_client_is_understood() -> None:
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}]
    message, requests = talk(
        PLAIN,
        lambda client: client.beta.messages.create(
            **ASKING,
            betas=["context-management-2025-06-27"],
            context_management={"edits": edits},
            metadata={"user_id": "u"},
            system=[{"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}}],
        ),
    )
    assert message.content[0].text == "It is warm."
    assert set(requests[0].ignored) == {"metadata", "cache_control", "context_management"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_packages_own_error(stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        talk(PLAIN, lambda client: client.messages.create(**ASKING, container="c", stream=stream))
    assert "container: the gateway runs no code" in caught.value.message
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reply", [CALLING, SILENT], ids=["words", "no words"])
def test_a_reply_that_is_sent_back_is_the_same(reply: Reply, stream: bool) -> None:
    async def ask(client: Any) -> None:
        asking = {**ASKING, "thinking": THINKING}
        if stream:
            _, first = await streamed(client, **asking)
        else:
            first = await client.messages.create(**asking)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "18"}
            for block in first.content
            if block.type == "tool_use"
        ]
        answer = [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        await client.messages.create(**{**ASKING, "messages": [USER, *answer]})

    _, (_, again) = talk(reply, ask)
    assert again.messages == (
        Message("user", "How warm is it?"),
        Message("assistant", reply.choices[0].text, CALLS),
        Message("tool", "18", call="call_1"),
        Message("tool", "18", call="call_2"),
    )
    assert set(again.ignored) == ({"thinking"} if reply is CALLING else set())
