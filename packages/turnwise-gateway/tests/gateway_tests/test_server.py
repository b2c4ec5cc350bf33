"""The gateway over HTTP: addresses and secrets, sizes and times, and who has hung up."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from turnwise.config import RolloutConfig, ScaffoldConfig
from turnwise_gateway import connections
from turnwise_gateway.address import Address
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.server import Gateway
from turnwise_gateway.session import Session

httpx = pytest.importorskip("httpx")
SCAFFOLDS = Scaffolds(ScaffoldConfig(options={"instructions": ""}), TOKENIZER)
LIMITS = RolloutConfig(max_turns=9, max_turn_tokens=80, max_tokens=900)
QUESTION = {"model": "policy", "messages": [{"role": "user", "content": "Capital of France?"}]}
Work = Callable[[Gateway, Session, Address, Any], Awaitable[None]]


def new_session(name: str, engine: Any = None) -> Session:
    engine = engine or HashedEngine(["<answer> Paris</answer>"])
    engine.open(name)
    return Session(name, 5, LIMITS, engine, SCAFFOLDS, TOKENIZER, rewarded_by_agent=True)


def served(work: Work, engine: Any = None) -> None:
    """Do something with a gateway that has one session."""

    async def all_of_it() -> None:
        gateway = Gateway()
        session = new_session("0-0", engine)
        address = await gateway.open(session)
        try:
            async with httpx.AsyncClient(timeout=10) as client:
                await work(gateway, session, address, client)
        finally:
            await gateway.stop()

    asyncio.run(all_of_it())


@pytest.mark.long
def test_each_route_answers() -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        chat = await client.post(f"{address.openai}/chat/completions", json=QUESTION)
        assert chat.json()["choices"][0]["message"]["content"] == "Paris"
        asked = {"model": "policy", "input": "Capital of Italy?"}
        answer = await client.post(f"{address.openai}/responses", json=asked)
        assert answer.json()["output"][-1]["content"][0]["text"] == "Paris"
        message = await client.post(
            f"{address.openai}/messages", json=QUESTION | {"max_tokens": 50}
        )
        assert message.json()["content"][0]["text"] == "Paris"
        count = await client.post(f"{address.openai}/messages/count_tokens", json=QUESTION)
        assert count.json() == {"input_tokens": chat.json()["usage"]["prompt_tokens"]}
        models = await client.get(f"{address.openai}/models")
        assert [one["id"] for one in models.json()["data"]] == ["policy"]
        assert (await client.get(f"{address.openai}/models/policy")).status_code == 200
        assert (await client.get(f"{address.openai}/models/gpt-9")).status_code == 404
        given = await client.post(
            f"{address.root}/reward", json={"reward": 0.5, "success": True, "parts": {"style": 1}}
        )
        assert given.status_code == 200
        assert session.reward is not None
        assert (session.reward.reward, session.reward.parts) == (0.5, {"style": 1.0})
        one = await client.post(
            f"{address.root}/reward", json={"reward": 0.1, "reply": chat.json()["id"]}
        )
        assert one.status_code == 200, one.text
        assert (await client.post(f"{address.root}/end")).status_code == 200
        assert session.ended.is_set()
        late = await client.post(f"{address.openai}/chat/completions", json=QUESTION)
        assert late.status_code == 403
        tokens, turns, capture = session.record()
        assert len(turns) == capture.calls == 3
        assert capture.trained == int(tokens.mask.sum())

    served(work)


def test_a_wrong_secret_an_ended_episode_and_tricks_with_the_path_are_refused() -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        other = await gateway.open(new_session("0-1"))
        end = "v1/chat/completions"
        for path in (
            f"e/{address.episode}/{other.secret}/{end}",
            f"e/99/{address.secret}/{end}",
            f"e/{address.episode}/x/{end}",
        ):
            answer = await client.post(f"{address.server}/{path}", json=QUESTION)
            assert answer.status_code == 401, path
            assert "no such episode" in answer.json()["error"]["message"]
        for path in (
            f"e/{address.episode}/{address.secret}/../{other.episode}/x/{end}",
            "e//v1/chat/completions",
            "../etc/passwd",
        ):
            answer = await client.post(f"{address.server}/{path}", json=QUESTION)
            assert answer.status_code in (401, 404), path
        assert (await client.get(f"{address.openai}/chat/completions")).status_code == 405
        await gateway.close(other)
        answer = await client.post(f"{other.openai}/chat/completions", json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            403,
            "the episode has ended",
        )
        stranger = f"{address.server}/e/{other.episode}/{address.secret}/{end}"
        assert (await client.post(stranger, json=QUESTION)).status_code == 401
        assert (await client.post(f"{address.openai}/chat/completions", json=QUESTION)).is_success

    served(work)


def test_a_path_that_is_none_is_said_in_the_words_of_the_api_around_it() -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        for path, kind in (("messages/batches", "error"), ("embeddings", None)):
            answer = await client.post(f"{address.openai}/{path}", json=QUESTION)
            body = answer.json()
            assert (answer.status_code, body.get("type")) == (404, kind)
            assert body["error"]["type"] == "not_found_error"
            assert f"there is no POST {path} here" in body["error"]["message"]
        answer = await client.get(f"{address.openai}/messages")
        assert (answer.status_code, answer.json()["type"]) == (405, "error")

    served(work)


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'"' + b"x" * 10_000_000 + b'"', 413, "more than 10000000 bytes"),
        (json.dumps(QUESTION | {"logit_bias": {"1": 2}}).encode(), 400, "logit_bias"),
        (json.dumps(QUESTION | {"surprise": 1}).encode(), 400, "surprise"),
        (json.dumps(QUESTION | {"model": "gpt-9"}).encode(), 404, "no model 'gpt-9'"),
    ],
)
def test_a_bad_body_is_refused_in_the_api_s_words(body: bytes, status: int, said: str) -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        answer = await client.post(f"{address.openai}/chat/completions", content=body)
        assert answer.status_code == status
        assert said in answer.json()["error"]["message"]
        assert (await client.post(f"{address.openai}/chat/completions", json=QUESTION)).is_success

    served(work)


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
def test_a_reward_that_is_none_is_refused(given: dict[str, Any]) -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        answer = await client.post(f"{address.root}/reward", content=json.dumps(given))
        assert answer.status_code in (400, 404)
        assert session.reward is None

    served(work)


async def _raw(address: Address, sent: bytes, seconds: float = 2) -> bytes:
    """The server's first answer to bytes; none where it closes the connection."""
    host, _, port = address.server.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    try:
        async with asyncio.timeout(seconds):
            await writer.drain()
            return await reader.read(4096)
    finally:
        writer.close()


@pytest.mark.long
def test_header_floods_and_silent_clients_lose_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)

    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        flood = b"POST / HTTP/1.1\r\n" + b"a: " + b"x" * 200_000 + b"\r\n"
        assert (await _raw(address, flood)).startswith(b"HTTP/1.1 400")
        assert await _raw(address, b"POST / HT") == b""
        path = address.openai.removeprefix(address.server)
        slow = f"POST {path}/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{{"
        assert b"408" in await _raw(address, slow.encode())
        assert (await client.post(f"{address.openai}/chat/completions", json=QUESTION)).is_success

    served(work)


class Slow(HashedEngine):
    """Takes a tenth of a second."""

    async def generate(self, *given: Any, **others: Any) -> Any:
        await asyncio.sleep(0.1)
        return await super().generate(*given, **others)


def test_what_a_dialect_refuses_is_in_the_account() -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        form = {"output_config": {"format": {"type": "json_schema"}}, "max_tokens": 5}
        await client.post(f"{address.openai}/messages", json=QUESTION | form)
        await client.post(f"{address.openai}/chat/completions", json=QUESTION | {"model": "gpt-9"})
        assert session.record()[2].refused == {"output_config.format": 1, "model": 1}

    served(work)


def test_a_client_that_hangs_up_has_no_reply_and_may_ask_again() -> None:
    engine = Slow(["<answer> Paris</answer>"])

    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        url = f"{address.openai}/chat/completions"
        with pytest.raises(httpx.ReadTimeout):
            await client.post(url, json=QUESTION, timeout=0.02)
        await asyncio.sleep(0.3)
        _, turns, capture = session.record()
        assert not turns
        assert capture.dropped["undelivered"] == capture.sampled > 0
        again = await client.post(url, json=QUESTION, headers={"x-stainless-retry-count": "1"})
        assert again.json()["choices"][0]["message"]["content"] == "Paris"
        _, turns, capture = session.record()
        assert len(turns) == 1
        assert not capture.dropped
        assert engine.requests == 1

    served(work, engine)


def test_a_client_that_leaves_in_mid_stream_has_no_reply() -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        asked = json.dumps(QUESTION | {"stream": True}).encode()
        path = address.openai.removeprefix(address.server)
        head = f"POST {path}/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(asked)}"
        host, _, port = address.server.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{head}\r\n\r\n".encode() + asked)
        await writer.drain()
        writer.transport.abort()
        await asyncio.sleep(0.2)
        assert not session.record()[1]
        whole = await client.post(
            f"{address.openai}/chat/completions", json=QUESTION | {"stream": True}
        )
        assert whole.text.endswith("data: [DONE]\n\n")
        assert len(session.record()[1]) == 1

    served(work, Slow(["<answer> Paris</answer>"]))


@pytest.mark.long
def test_five_hundred_sessions_at_once_are_kept_apart() -> None:
    async def work(gateway: Gateway, session: Session, address: Address, client: Any) -> None:
        sessions = [new_session(f"1-{n}", HashedEngine()) for n in range(500)]
        addresses = [await gateway.open(one) for one in sessions]

        async def ask(n: int) -> None:
            words = {"role": "user", "content": f"Question {n}?"}
            body = json.dumps({"model": "policy", "messages": [words]}).encode()
            path = addresses[n].openai.removeprefix(address.server)
            head = f"POST {path}/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close"
            asked = f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
            assert (await _raw(address, asked, seconds=60)).startswith(b"HTTP/1.1 200")

        await asyncio.gather(*(ask(n) for n in range(500)))
        for n, one in enumerate(sessions):
            tokens, turns, _ = one.record()
            assert len(turns) == 1
            assert TOKENIZER.decode(tokens.ids.tolist()).startswith(f"Question {n}?\n")
            await gateway.close(addresses[n])

    served(work)
