"""What one agent sends to stop or stall a run is refused in bounded time, and the run goes on."""

import asyncio
import base64
import json
import socket
import time
from contextlib import ExitStack
from typing import Any

import pytest

from gateway_tests.asking import PROMPT, limits, request, session
from gateway_tests.hashed_engine import TOKENIZER
from gateway_tests.test_server import CHAT, QUESTION, served
from turnwise.config import ScaffoldConfig
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Segment
from turnwise.types import Observation, ToolCall
from turnwise_gateway import bounds, connections
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, RefusedError, Request, ToolSchema
from turnwise_gateway.session import FEWEST_REFUSALS

DEEP = json.loads('{"a":' * 500 + "1" + "}" * 500)
CALL = {"name": "f", "arguments": json.dumps(DEEP)}
CALLED = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": CALL}]}
SCHEMA = {"type": "object", "properties": DEEP}
TOOLS = [{"type": "function", "function": {"name": f"t{n}"}} for n in range(20_000)]
BODIES = {
    "a reward of 401 digits": ("/reward", {"reward": 10**400}),
    "a part of 401 digits": ("/reward", {"reward": 1, "parts": {"a": 10**400}}),
    "half a pair of surrogates": ("/reward", '{"\\ud800": 1}'),
    "half a pair in a chat": (CHAT, '{"\\ud800": 1}'),
    "deep schema": (
        CHAT,
        QUESTION
        | {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
    ),
    "deep arguments": (CHAT, {"model": "policy", "messages": [*QUESTION["messages"], CALLED]}),
    "deep input": ("/v1/responses", {"model": "policy", "input": DEEP}),
    "many tools": (CHAT, QUESTION | {"tools": TOOLS}),
    "many messages": (CHAT, '{"messages": [' + "{}," * 3_000_000 + "{}]}"),
    "many stop strings": (CHAT, QUESTION | {"stop": [f"{n}" for n in range(500_000)]}),
    "many parts of a reward": ("/reward", {"reward": 1, "parts": {f"{n}": 1 for n in range(9**5)}}),
    "a long prompt": (
        CHAT,
        QUESTION | {"messages": [{"role": "user", "content": "word " * 1_900_000}]},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BODIES)
async def test_a_request_that_would_end_or_stall_a_run_is_refused(name: str) -> None:
    path, body = BODIES[name]
    content = body if isinstance(body, str) else json.dumps(body)
    async with served() as at:
        begun = time.monotonic()
        answer = await at.post(path, None, content=content)
        assert answer.status_code in (400, 413), answer.text
        assert answer.json()["error"]["message"]
        assert time.monotonic() - begun < 5
        assert at.session.bug is None
        assert (await at.post()).is_success


HEADER = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (60_000).to_bytes(4, "big") * 2
BOMB = {"url": "data:image/png;base64," + base64.b64encode(HEADER).decode()}


async def test_an_image_of_too_many_pixels_and_a_name_of_a_megabyte_are_refused_shortly() -> None:
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": BOMB}]}
    async with served() as at:
        for body, said in (
            ({"model": "policy", "messages": [shown]}, "pixels"),
            (QUESTION | {"x" * 1_000_000: 1}, "xxx"),
        ):
            answer = await at.post(json=body)
            assert (answer.status_code, said in answer.text) == (400, True)
            assert len(answer.text) < 5_000
        await at.gateway.close(at.address)
        _, _, capture = at.session.record()
        assert max(map(len, capture.refused)) < 1_000


LONG = "x" * 100_000
CALLED_LONG = Message("assistant", "", (ToolCall(LONG, {}, "1"),))
MANY = tuple(ToolSchema(f"t{n}", "", {}) for n in range(bounds.MOST_TOOLS + 1))


@pytest.mark.parametrize(
    ("field", "said", "asked"),
    [
        ("messages", "are more than", request(PROMPT * (bounds.MOST_MESSAGES + 1))),
        ("tools", "are more than", Request(PROMPT, MANY)),
        ("stop", "are more than", request(stop=("x",) * (bounds.MOST_STOPS + 1))),
        ("messages", "characters are too many", request((Message("user", LONG),))),
        ("messages", "characters are too many", request(stop=(LONG,))),
        ("messages", "characters are too many", request((*PROMPT, CALLED_LONG, *PROMPT))),
    ],
    ids=["messages", "tools", "stops", "a long message", "a long stop", "a long call"],
)
async def test_a_request_is_bounded_before_anything_is_rendered(
    field: str, said: str, asked: Request
) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        await session().ask(asked)
    assert refused.value.field == field


@pytest.mark.long
@pytest.mark.parametrize("path", [CHAT, "/v1/messages/count_tokens", "/reward"])
async def test_an_episode_has_a_budget_of_refused_requests(path: str) -> None:
    async with served() as at:
        most = max(FEWEST_REFUSALS, at.session.limits.max_turns)
        for refusals in range(most + 1):
            assert at.session.limit is None, refusals
            assert (await at.post(path, {})).status_code == 400
        answer = await at.post(path)
        assert (answer.status_code, "requests were refused" in answer.text) == (403, True)
        assert at.session.limit is not None


class Slow(TagsScaffold):
    """Takes long to render."""

    def begin(self, prompt: Observation, system: str = "") -> list[Segment]:
        time.sleep(0.5)
        return super().begin(prompt, system)


@pytest.mark.long
@pytest.mark.parametrize("method", ["ask", "count"])
async def test_others_are_served_while_a_long_prompt_is_rendered(method: str) -> None:
    own = session(scaffolds=Scaffolds(ScaffoldConfig(name=f"{__file__}:Slow"), TOKENIZER))
    asking = asyncio.create_task(getattr(own, method)(request()))
    served = 0
    while not asking.done():
        await asyncio.sleep(0.01)
        served += 1
    await asking
    assert served > 10  # two or three where the loop renders itself


@pytest.mark.long
async def test_others_are_served_while_a_large_body_is_read() -> None:
    parts = [{"type": "text", "text": "word"}] * 50_000
    content = json.dumps(QUESTION | {"messages": [{"role": "user", "content": parts}]})
    async with served() as at:
        asking = asyncio.create_task(at.post(json=None, content=content))
        served_meanwhile = 0
        while not asking.done():
            await asyncio.sleep(0.01)
            served_meanwhile += 1
        assert (await asking).status_code == 400
        assert served_meanwhile > 10  # three where the loop reads it itself


async def test_requests_at_the_same_time_do_not_overrun_the_budget() -> None:
    own = session(limits=limits(max_turns=2))
    asked = [own.ask(request((Message("user", f"{n}?"),))) for n in range(5)]
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(one, RefusedError) for one in ended].count(False) == 2


def _connected(address: Any) -> socket.socket:
    host, _, port = address.server.removeprefix("http://").partition(":")
    made = socket.create_connection((host, int(port)))
    made.setblocking(False)
    return made


def _ended(connection: socket.socket) -> bool:
    """Whether the server ended a connection on which nothing was asked."""
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def _trickle(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    for _ in range(500):
        await loop.sock_sendall(connection, b"G")
        await asyncio.sleep(0.02)


@pytest.mark.long
async def test_connections_have_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    async with served() as at, asyncio.timeout(connections.PATIENCE / 2):
        open_ones = at.gateway._server.server_state.connections
        with ExitStack() as stack:
            idle = [stack.enter_context(_connected(at.address)) for _ in range(40)]
            while sum(map(_ended, idle)) < 20:
                await asyncio.sleep(0.01)
            assert len(open_ones) == 20
        while open_ones:
            await asyncio.sleep(0.01)
        assert (await at.post()).is_success


@pytest.mark.long
async def test_a_later_request_that_trickles_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.3)
    async with served() as at:
        loop = asyncio.get_running_loop()
        with _connected(at.address) as first:
            await loop.sock_sendall(first, b"GET /none HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"404" in await loop.sock_recv(first, 4096)
            with pytest.raises(ConnectionError):
                await _trickle(loop, first)
        assert (await at.post()).is_success


@pytest.mark.long
async def test_half_bodies_hold_no_more_than_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 1.0)
    monkeypatch.setattr(connections, "MOST_BYTES", 100_000)

    async def half() -> Any:
        yield b"x" * 60_000
        await asyncio.sleep(0.5)
        yield b"x"

    async with served() as at:
        answers = await asyncio.gather(*(at.post(json=None, content=half()) for _ in range(3)))
        assert 429 in [one.status_code for one in answers]
        assert (await at.post()).is_success
