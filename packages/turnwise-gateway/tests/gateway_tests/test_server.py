"""The gateway over HTTP: addresses and secrets, sizes and times, and who has hung up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gateway_tests.asking import SCAFFOLDS, limits
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from gateway_tests.playing import RIGHT
from turnwise_gateway import connections
from turnwise_gateway.address import Address
from turnwise_gateway.server import Gateway
from turnwise_gateway.session import Session

httpx = pytest.importorskip("httpx")
CHAT = "/v1/chat/completions"
QUESTION = {"model": "policy", "messages": [{"role": "user", "content": "Capital of France?"}]}


def new_session(name: str, engine: Any = None) -> Session:
    engine = engine or HashedEngine([RIGHT])
    engine.open(name)
    bounds = limits(max_turns=9, max_tokens=900)
    return Session(name, 5, bounds, engine, SCAFFOLDS, TOKENIZER, rewarded_by_agent=True)


@dataclass
class Served:
    """A gateway with one session, and a client of it."""

    gateway: Gateway
    session: Session
    address: Address
    client: Any

    async def post(self, path: str = CHAT, json: Any = QUESTION, **others: Any) -> Any:
        """The answer to a request at a path of the session's address."""
        return await self.client.post(f"{self.address.root}{path}", json=json, **others)

    async def get(self, path: str) -> Any:
        return await self.client.get(f"{self.address.root}{path}")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.address.server.removeprefix("http://").partition(":")
        return await asyncio.open_connection(host, int(port))

    async def raw(self, sent: bytes, seconds: float = 2) -> bytes:
        """The server's first answer to bytes; none where it closes the connection."""
        reader, writer = await self.connect()
        writer.write(sent)
        try:
            async with asyncio.timeout(seconds):
                await writer.drain()
                return await reader.read(4096)
        finally:
            writer.close()


@asynccontextmanager
async def served(engine: Any = None, session: Session | None = None) -> AsyncIterator[Served]:
    gateway, session = Gateway(), session or new_session("0-0", engine)
    address = await gateway.open(session)
    try:
        # Certificates, which nothing here needs, take longer to load than most answers.
        async with httpx.AsyncClient(timeout=10, verify=False) as client:
            yield Served(gateway, session, address, client)
    finally:
        await gateway.stop()


def head(address: Address, length: int, *more: str) -> str:
    """The first lines of a chat request, for a body of so many bytes."""
    path = f"{address.root}{CHAT}".removeprefix(address.server)
    lines = (f"POST {path} HTTP/1.1", "host: x", f"content-length: {length}", *more)
    return "\r\n".join(lines) + "\r\n\r\n"


@pytest.mark.long
async def test_each_route_answers() -> None:
    async with served() as at:
        chat = await at.post()
        assert chat.json()["choices"][0]["message"]["content"] == "Paris"
        answer = await at.post("/v1/responses", {"model": "policy", "input": "Capital of Italy?"})
        assert answer.json()["output"][-1]["content"][0]["text"] == "Paris"
        message = await at.post("/v1/messages", QUESTION | {"max_tokens": 50})
        assert message.json()["content"][0]["text"] == "Paris"
        count = await at.post("/v1/messages/count_tokens")
        assert count.json() == {"input_tokens": chat.json()["usage"]["prompt_tokens"]}
        assert [one["id"] for one in (await at.get("/v1/models")).json()["data"]] == ["policy"]
        assert (await at.get("/v1/models/policy")).status_code == 200
        assert (await at.get("/v1/models/gpt-9")).status_code == 404
        given = {"reward": 0.5, "success": True, "parts": {"style": 1}}
        given |= {"reply": None, "role": None}  # as absent
        assert (await at.post("/reward", given)).status_code == 200
        assert (at.session.reward.reward, at.session.reward.parts) == (0.5, {"style": 1.0})
        one = await at.post("/reward", {"reward": 0.1, "reply": chat.json()["id"]})
        assert one.status_code == 200, one.text
        assert (await at.post("/end")).status_code == 200
        assert at.session.ended.is_set()
        assert (await at.post()).status_code == 403
        tokens, turns, capture = at.session.record()
        assert len(turns) == capture.calls == 3
        assert capture.trained == int(tokens.mask.sum())


async def test_a_wrong_secret_an_ended_episode_and_tricks_with_the_path_are_refused() -> None:
    async with served() as at:
        other, own = await at.gateway.open(new_session("0-1")), at.address

        async def ask(path: str) -> Any:
            return await at.client.post(f"{own.server}/{path}{CHAT}", json=QUESTION)

        for episode, secret in (
            (own.episode, other.secret),
            ("99", own.secret),
            (own.episode, "x"),
        ):
            answer = await ask(f"e/{episode}/{secret}")
            assert answer.status_code == 401, (episode, secret)
            assert "no such episode" in answer.json()["error"]["message"]
        for path in (f"e/{own.episode}/{own.secret}/../{other.episode}/x", "e/", "../etc/passwd"):
            assert (await ask(path)).status_code in (401, 404), path
        assert (await at.get(CHAT)).status_code == 405
        await at.gateway.close(other)
        answer = await ask(f"e/{other.episode}/{other.secret}")
        assert answer.status_code == 403
        assert answer.json()["error"]["message"] == "the episode has ended"
        assert (await ask(f"e/{other.episode}/{own.secret}")).status_code == 401
        assert (await at.post()).is_success


async def test_a_path_that_is_none_is_said_in_the_words_of_the_api_around_it() -> None:
    async with served() as at:
        for path, kind in (("messages/batches", "error"), ("embeddings", None)):
            answer = await at.post(f"/v1/{path}")
            body = answer.json()
            assert (answer.status_code, body.get("type")) == (404, kind)
            assert body["error"]["type"] == "not_found_error"
            assert f"there is no POST {path} here" in body["error"]["message"]
        answer = await at.get("/v1/messages")
        assert (answer.status_code, answer.json()["type"]) == (405, "error")


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'"' + b"x" * 10_000_000 + b'"', 413, "more than 10000000 bytes"),
        (
            json.dumps(QUESTION | {"logit_bias": {"1": 2}, "stream": True}).encode(),
            400,
            "logit_bias",
        ),
        (json.dumps(QUESTION | {"surprise": 1}).encode(), 400, "surprise"),
        (json.dumps(QUESTION | {"model": "gpt-9"}).encode(), 404, "no model 'gpt-9'"),
    ],
)
async def test_a_bad_body_is_refused_in_the_api_s_words(
    body: bytes, status: int, said: str
) -> None:
    async with served() as at:
        answer = await at.post(json=None, content=body)
        assert answer.status_code == status
        assert said in answer.json()["error"]["message"]
        assert (await at.post()).is_success


@pytest.mark.long
@pytest.mark.parametrize(
    "given",
    [
        {"reward": "much"},
        {"reward": True},
        {"reward": float("inf")},
        {"reward": 1, "success": "yes"},
        {"reward": 1, "parts": [1]},
        {"reward": 1, "parts": {"style": None}},
        {"reward": 1, "reply": "none"},
        {"score": 1},
    ],
)
async def test_a_reward_that_is_none_is_refused(given: dict[str, Any]) -> None:
    async with served() as at:
        answer = await at.post("/reward", None, content=json.dumps(given))
        assert answer.status_code in (400, 404)
        assert at.session.reward is None


@pytest.mark.long
async def test_header_floods_and_silent_clients_lose_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    async with served() as at:
        flood = b"POST / HTTP/1.1\r\n" + b"a: " + b"x" * 200_000 + b"\r\n"
        assert (await at.raw(flood)).startswith(b"HTTP/1.1 400")
        assert await at.raw(b"POST / HT") == b""
        assert b"408" in await at.raw(head(at.address, 50).encode() + b"{")
        assert (await at.post()).is_success


async def test_what_a_dialect_refuses_is_in_the_account() -> None:
    async with served() as at:
        form = {"output_config": {"format": {"type": "json_schema"}}, "max_tokens": 5}
        await at.post("/v1/messages", QUESTION | form)
        await at.post(json=QUESTION | {"model": "gpt-9"})
        assert at.session.record()[2].refused == {"output_config.format": 1, "model": 1}


async def test_a_client_that_hangs_up_has_no_reply_and_may_ask_again() -> None:
    engine = HashedEngine([RIGHT], seconds=0.1)
    async with served(engine) as at:
        with pytest.raises(httpx.ReadTimeout):
            await at.post(timeout=0.02)
        await asyncio.sleep(0.3)
        _, turns, capture = at.session.record()
        assert not turns
        assert capture.dropped["undelivered"] == capture.sampled > 0
        again = await at.post(headers={"x-stainless-retry-count": "1"})
        assert again.json()["choices"][0]["message"]["content"] == "Paris"
        _, turns, capture = at.session.record()
        assert len(turns) == 1
        assert not capture.dropped
        assert engine.requests == 1


async def test_a_client_that_leaves_in_mid_stream_has_no_reply() -> None:
    async with served(HashedEngine([RIGHT], seconds=0.1)) as at:
        asked = json.dumps(QUESTION | {"stream": True}).encode()
        _, writer = await at.connect()
        writer.write(head(at.address, len(asked)).encode() + asked)
        await writer.drain()
        writer.transport.abort()
        await asyncio.sleep(0.2)
        assert not at.session.record()[1]
        whole = await at.post(json=QUESTION | {"stream": True})
        assert whole.text.endswith("data: [DONE]\n\n")
        assert len(at.session.record()[1]) == 1


@pytest.mark.long
async def test_five_hundred_sessions_at_once_are_kept_apart() -> None:
    async with served() as at:
        sessions = [new_session(f"1-{n}", HashedEngine()) for n in range(500)]
        addresses = [await at.gateway.open(one) for one in sessions]

        async def ask(n: int) -> None:
            words = {"role": "user", "content": f"Question {n}?"}
            body = json.dumps({"model": "policy", "messages": [words]}).encode()
            asked = head(addresses[n], len(body), "connection: close").encode() + body
            assert (await at.raw(asked, seconds=60)).startswith(b"HTTP/1.1 200")

        await asyncio.gather(*(ask(n) for n in range(500)))
        for n, one in enumerate(sessions):
            tokens, turns, _ = one.record()
            assert len(turns) == 1
            assert TOKENIZER.decode(tokens.ids.tolist()).startswith(f"Question {n}?\n")
            await at.gateway.close(addresses[n])
