"""Responses as the package `openai` sends and understands them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
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
from turnwise_gateway.dialects import responses
from turnwise_gateway.requests import Message, Reply, Request

USER = {"role": "user", "content": "How warm is it?"}
TOOLS = [
    {"type": "function", "name": name, "parameters": WEATHER, "strict": True}
    for name in ("weather", "clock")
]
ASKING = {"model": "policy", "input": [USER], "tools": TOOLS}


def talk(reply: Reply, ask: Callable[[Any], Awaitable[Any]]) -> tuple[Any, list[Request]]:
    """The result of asking `client.responses`, and the requests that were read."""
    served = Served(responses, reply)

    async def run() -> Any:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(served.app))
        address = "http://gateway/v1"
        async with openai.AsyncOpenAI(
            api_key="none", base_url=address, http_client=http, max_retries=0
        ) as client:
            return await ask(client.responses)

    return asyncio.run(run()), served.requests


async def streamed(asked: Any) -> Any:
    """The events, and the response that the package puts together."""
    async with asked.stream(**ASKING) as stream:
        events = [event async for event in stream]
        return events, await stream.get_final_response()


def check(response: Any) -> None:
    assert (response.status, response.output_text) == ("completed", WORDS)
    thinking, _, *calls = response.output
    assert [part.text for part in thinking.summary] == [THOUGHT]
    assert [call.call_id for call in calls] == ["call_1", "call_2"]
    assert [call.name for call in calls] == ["weather", "clock"]
    assert [json.loads(call.arguments) for call in calls] == [call.arguments for call in CALLS]
    assert response.usage.total_tokens == 88


def test_a_reply_with_calls() -> None:
    response, requests = talk(CALLING, lambda asked: asked.create(**ASKING))
    check(response)
    assert [tool.name for tool in response.tools] == ["weather", "clock"]
    assert [tool.name for tool in requests[0].tools] == ["weather", "clock"]


def test_a_streamed_reply_with_calls() -> None:
    (events, response), requests = talk(CALLING, streamed)
    check(response)
    assert requests[0].stream
    texts = [event for event in events if event.type == "response.output_text.delta"]
    assert len(texts) > 2
    assert texts[-1].snapshot == "".join(event.delta for event in texts) == WORDS
    kind = "response.function_call_arguments.delta"
    arguments = [event for event in events if event.type == kind and event.output_index == 2]
    assert len(arguments) > 1
    assert json.loads(arguments[-1].snapshot) == CALLS[0].arguments
    thoughts = [
        event.delta for event in events if event.type == "response.reasoning_summary_text.delta"
    ]
    assert "".join(thoughts) == THOUGHT


def test_a_reply_that_was_cut_off() -> None:
    async def ask(asked: Any) -> Any:
        stream = await asked.create(**ASKING, stream=True)
        return await asked.create(**ASKING), [event async for event in stream]

    (response, events), _ = talk(CUT_OFF, ask)
    assert events[-1].type == "response.incomplete"
    for one in (response, events[-1].response):
        assert (one.status, one.output_text) == ("incomplete", "It is")
        assert one.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_packages_own_error(stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        talk(
            PLAIN,
            lambda asked: asked.create(model="m", input="Hi.", background=True, stream=stream),
        )
    assert "background: a reply comes with its request" in caught.value.message
    assert (caught.value.param, caught.value.type) == ("background", "invalid_request_error")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reply", [CALLING, SILENT], ids=["words", "no words"])
def test_a_reply_that_is_sent_back_is_the_same(reply: Reply, stream: bool) -> None:
    async def ask(asked: Any) -> None:
        first = (await streamed(asked))[1] if stream else await asked.create(**ASKING)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "18"}
            for item in first.output
            if item.type == "function_call"
        ]
        await asked.create(**{**ASKING, "input": [USER, *first.output, *results]})

    _, (_, again) = talk(reply, ask)
    assert again.messages == (
        Message("user", "How warm is it?"),
        Message("assistant", reply.choices[0].text, CALLS),
        Message("tool", "18", call="call_1"),
        Message("tool", "18", call="call_2"),
    )
    assert ("reasoning" in again.ignored) == (reply is CALLING)
