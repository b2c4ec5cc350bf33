"""Each dialect as its vendor's package sends and understands it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from gateway_tests.asking import LIMITS, SCAFFOLDS
from gateway_tests.dialects.serving import (
    CALLING,
    CALLS,
    THOUGHT,
    TWO,
    WEATHER,
    WORDS,
)
from gateway_tests.dialects.speaking import INPUT
from gateway_tests.dialects.test_battery import heard, numbers
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from gateway_tests.test_server import served
from turnwise_gateway.address import Address
from turnwise_gateway.dialects import chat_completions, messages, responses
from turnwise_gateway.requests import Message, Reply, Request
from turnwise_gateway.session import Session

USER = {"role": "user", "content": "How warm is it?"}
NAMES = ("weather", "clock")


@dataclass(frozen=True)
class Package:
    """How a dialect's package is used."""

    dialect: Any
    part: Callable[[Any], Any]
    """The part of a client that asks."""
    final: str
    """The method that gives the whole of a stream."""
    tools: list[dict[str, Any]]
    kinds: tuple[str, ...]
    """The events of words, and of what else comes in pieces."""
    ending: str
    back: Callable[[Any], list[Any]]
    """A reply as it is sent back, with the results of its calls."""
    asking: dict[str, Any] = field(default_factory=dict)
    streaming: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.dialect.NAME)

    @property
    def whole(self) -> dict[str, Any]:
        """The fields of a request."""
        asked = {INPUT[str(self)]: [USER], "tools": self.tools}
        return {"model": "policy", **asked, **self.asking}

    async def ask(self, client: Any, stream: bool, **more: Any) -> tuple[list[Any], Any]:
        """The events, and the reply as the package has it."""
        if not stream:
            return [], await self.part(client).create(**{**self.whole, **more})
        async with self.part(client).stream(**{**self.whole, **self.streaming, **more}) as asked:
            return [event async for event in asked], await getattr(asked, self.final)()

    async def talk(
        self, reply: Reply, ask: Callable[[Any], Awaitable[Any]]
    ) -> tuple[Any, list[Request]]:
        """The result of asking a client, and the requests that were read."""
        own = Answering("0-0", 5, LIMITS, HashedEngine(), SCAFFOLDS, TOKENIZER)
        own.reply, own.read = reply, []
        async with served(session=own) as at, client_of(self.dialect, at.address) as client:
            return await ask(client), own.read


class Answering(Session):
    """Gives one reply to every request."""

    reply: Reply
    read: list[Request]

    async def _answer(self, request: Request) -> Reply:
        self.read.append(request)
        return self.reply


def client_of(dialect: Any, address: Address) -> Any:
    settings: dict[str, Any] = {"api_key": address.secret, "max_retries": 0}
    if dialect is messages:
        http = anthropic.DefaultAsyncHttpxClient(verify=False)
        return anthropic.AsyncAnthropic(base_url=address.root, http_client=http, **settings)
    http = openai.DefaultAsyncHttpxClient(verify=False)
    return openai.AsyncOpenAI(base_url=address.openai, http_client=http, **settings)


def chat_back(reply: Any) -> list[Any]:
    message = reply.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id} for call in message.tool_calls]
    return [message, *({**one, "content": "18"} for one in results)]


def responses_back(reply: Any) -> list[Any]:
    kind = "function_call"
    calls = [item.call_id for item in reply.output if item.type == kind]
    return [
        *reply.output,
        *({"type": f"{kind}_output", "call_id": call, "output": "18"} for call in calls),
    ]


def messages_back(reply: Any) -> list[Any]:
    ids = [block.id for block in reply.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "18"} for one in ids]
    return [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]


CHAT = Package(
    chat_completions,
    lambda client: client.chat.completions,
    "get_final_completion",
    [
        {"type": "function", "function": {"name": name, "parameters": WEATHER, "strict": True}}
        for name in NAMES
    ],
    ("content.delta", "tool_calls.function.arguments.delta"),
    "tool_calls",
    chat_back,
    streaming={"stream_options": {"include_usage": True}},
)
RESPONSES = Package(
    responses,
    lambda client: client.responses,
    "get_final_response",
    [{"type": "function", "name": name, "parameters": WEATHER, "strict": True} for name in NAMES],
    (
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta",
    ),
    "completed",
    responses_back,
)
MESSAGES = Package(
    messages,
    lambda client: client.messages,
    "get_final_message",
    [{"name": name, "input_schema": WEATHER} for name in NAMES],
    ("text", "thinking", "input_json"),
    "tool_use",
    messages_back,
    {"max_tokens": 99, "thinking": {"type": "adaptive"}},
)
by_package = pytest.mark.parametrize("package", [CHAT, RESPONSES, MESSAGES], ids=str)
by_way = pytest.mark.parametrize("stream", [False, True])


@by_way
@by_package
async def test_a_reply_with_thoughts_and_calls(package: Package, stream: bool) -> None:
    (events, reply), (request,) = await package.talk(
        CALLING, lambda client: package.ask(client, stream)
    )
    found = heard(str(package), reply)
    assert (found["text"], found["thought"], found["ending"]) == (WORDS, THOUGHT, package.ending)
    assert found["calls"] == [(call.id, call.name, call.arguments) for call in CALLS]
    assert numbers(reply.usage.model_dump())[:2] == (57, 31)
    assert [tool.name for tool in request.tools] == list(NAMES)
    assert request.stream == stream
    assert request.max_tokens == (99 if package is MESSAGES else None)
    assert package is not RESPONSES or [tool.name for tool in reply.tools] == list(NAMES)
    if stream:
        pieces = [[one for one in events if one.type == kind] for kind in package.kinds]
        assert min(map(len, pieces)) > 2
        assert pieces[0][-1].snapshot == WORDS


@by_way
@by_package
async def test_a_reply_that_is_sent_back_is_the_same(package: Package, stream: bool) -> None:
    async def ask(client: Any) -> None:
        _, first = await package.ask(client, stream)
        again = {INPUT[str(package)]: [USER, *package.back(first)]}
        await package.part(client).create(**{**package.whole, **again})

    _, (_, again) = await package.talk(CALLING, ask)
    assert again.messages == (
        Message("user", "How warm is it?"),
        Message("assistant", WORDS, CALLS),
        Message("tool", "18", call="call_1"),
        Message("tool", "18", call="call_2"),
    )
    if package is CHAT:
        added = {"index", "parsed_arguments"} if stream else set()
        assert set(again.ignored) == {"strict", "reasoning_content", *added}
    elif package is RESPONSES:
        assert "reasoning" in again.ignored
    else:
        assert set(again.ignored) == {"thinking"}


async def test_several_replies_with_log_probabilities() -> None:
    asking = {"model": "policy", "messages": [USER], "n": 2, "logprobs": True}

    async def pieces(client: Any) -> Any:
        state = ChatCompletionStreamState()
        async for chunk in await client.chat.completions.create(**asking, stream=True):
            state.handle_chunk(chunk)
        return state.current_completion_snapshot

    whole, requests = await CHAT.talk(TWO, lambda client: client.chat.completions.create(**asking))
    pieced, _ = await CHAT.talk(TWO, pieces)
    assert requests[0].count == 2
    for reply in (whole, pieced):
        assert [choice.index for choice in reply.choices] == [0, 1]
        texts = [choice.message.content for choice in reply.choices]
        assert texts == [choice.text for choice in TWO.choices]
        assert [choice.finish_reason for choice in reply.choices] == ["stop", "length"]
        read = [[token.logprob for token in one.logprobs.content] for one in reply.choices]
        assert read == [[-0.5, -0.25, -2.0, -0.125], [-0.5]]
