"""Chat completions as the package `openai` sends and understands them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from gateway_tests.dialects.serving import (
    CALLING,
    CALLS,
    PLAIN,
    SILENT,
    THOUGHT,
    TWO,
    WEATHER,
    WORDS,
    Served,
)
from turnwise_gateway.dialects import chat_completions
from turnwise_gateway.requests import Message, Reply, Request

USER = {"role": "user", "content": "How warm is it?"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": WEATHER, "strict": True}}
    for name in ("weather", "clock")
]
ASKING = {"model": "policy", "messages": [USER], "tools": TOOLS}


def talk(reply: Reply, ask: Callable[[Any], Awaitable[Any]]) -> tuple[Any, list[Request]]:
    """The result of asking `client.chat.completions`, and the requests that were read."""
    served = Served(chat_completions, reply)

    async def run() -> Any:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(served.app))
        address = "http://gateway/v1"
        async with openai.AsyncOpenAI(
            api_key="none", base_url=address, http_client=http, max_retries=0
        ) as client:
            return await ask(client.chat.completions)

    return asyncio.run(run()), served.requests


async def streamed(completions: Any, **fields: Any) -> Any:
    """The completion that the package puts together, and the events on the way."""
    async with completions.stream(**{**ASKING, **fields}) as stream:
        events = [event async for event in stream]
        return events, await stream.get_final_completion()


def check_calls(message: Any) -> None:
    assert [call.id for call in message.tool_calls] == ["call_1", "call_2"]
    assert [call.function.name for call in message.tool_calls] == ["weather", "clock"]
    given = [json.loads(call.function.arguments) for call in message.tool_calls]
    assert given == [call.arguments for call in CALLS]


@pytest.mark.long
def test_a_reply_with_calls() -> None:
    reply, requests = talk(CALLING, lambda completions: completions.create(**ASKING))
    (choice,) = reply.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", WORDS)
    assert choice.message.reasoning_content == THOUGHT
    check_calls(choice.message)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (57, 31)
    assert [tool.name for tool in requests[0].tools] == ["weather", "clock"]
    assert requests[0].ignored == ("strict",)


def test_a_streamed_reply_with_calls() -> None:
    (events, reply), requests = talk(
        CALLING, lambda completions: streamed(completions, stream_options={"include_usage": True})
    )
    assert [event.type for event in events].count("content.delta") > 3
    assert [event.type for event in events].count("tool_calls.function.arguments.done") == 2
    (choice,) = reply.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", WORDS)
    assert choice.message.reasoning_content == THOUGHT
    check_calls(choice.message)
    assert reply.usage.total_tokens == 88
    assert requests[0].stream
    assert requests[0].stream_usage


def test_several_replies_with_log_probabilities() -> None:
    asking = {"model": "policy", "messages": [USER], "n": 2, "logprobs": True}

    async def pieces(completions: Any) -> Any:
        state = ChatCompletionStreamState()
        async for chunk in await completions.create(**asking, stream=True):
            state.handle_chunk(chunk)
        return state.current_completion_snapshot

    whole, requests = talk(TWO, lambda completions: completions.create(**asking))
    pieced, _ = talk(TWO, pieces)
    assert requests[0].count == 2
    for reply in (whole, pieced):
        assert [choice.index for choice in reply.choices] == [0, 1]
        texts = [choice.message.content for choice in reply.choices]
        assert texts == [choice.text for choice in TWO.choices]
        assert [choice.finish_reason for choice in reply.choices] == ["stop", "length"]
        read = [[token.logprob for token in one.logprobs.content] for one in reply.choices]
        assert read == [[-0.5, -0.25, -2.0, -0.125], [-0.5]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_packages_own_error(stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        talk(
            PLAIN,
            lambda completions: completions.create(**ASKING, stream=stream, logit_bias={"5": 1}),
        )
    assert "logit_bias: no token's chance can be changed" in caught.value.message
    assert (caught.value.param, caught.value.type) == ("logit_bias", "invalid_request_error")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reply", [CALLING, SILENT], ids=["words", "no words"])
def test_a_reply_that_is_sent_back_is_the_same(reply: Reply, stream: bool) -> None:
    async def ask(completions: Any) -> None:
        if stream:
            _, first = await streamed(completions)
        else:
            first = await completions.create(**ASKING)
        message = first.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "18"}
            for call in message.tool_calls
        ]
        await completions.create(**{**ASKING, "messages": [USER, message, *results]})

    _, (_, again) = talk(reply, ask)
    assert again.messages == (
        Message("user", "How warm is it?"),
        Message("assistant", reply.choices[0].text, CALLS),
        Message("tool", "18", call="call_1"),
        Message("tool", "18", call="call_2"),
    )
    thoughts = {"reasoning_content"} if reply is CALLING else set()
    added = {"index", "parsed_arguments"} if stream else set()
    assert set(again.ignored) == {"strict", *thoughts, *added}
