"""Replies of an endpoint and their tokens. Ways to fail: the tests of `desk`."""

import asyncio
import json

import pytest

from tests.chat_server import serving
from turnwise.chat.endpoint import ChatEndpoint, Reply, check_endpoint
from turnwise.errors import ConfigError, InfrastructureError

BODY = {"model": "m", "messages": [{"role": "user", "content": "x" * 4000}]}


def answer(usage: object) -> str:
    return json.dumps({"choices": [{"message": {"content": "Yes."}}], "usage": usage})


def test_tokens_are_those_that_the_endpoint_counts() -> None:
    with serving(lambda body, number: "Yes.") as server:
        server.failures = [answer({"total_tokens": 17})]
        assert asyncio.run(ChatEndpoint(server.url, "m").ask(BODY)) == Reply("Yes.", 17)


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": "17"}, {"total_tokens": 0}, [17]])
def test_tokens_are_estimated_where_it_does_not_say(usage: object) -> None:
    with serving(lambda body, number: "Yes.") as server:
        server.failures = [answer(usage)]
        reply = asyncio.run(ChatEndpoint(server.url, "m").ask(BODY))
    assert 1000 < reply.tokens < 1100


@pytest.mark.parametrize(("proxy", "told"), [("", "501"), ("socks9://127.0.0.1:1", "HTTPS_PROXY")])
def test_an_endpoint_with_a_certificate_is_reached_by_the_proxy_of_the_environment(
    proxy: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda body, number: "Yes.") as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy or server.url)  # which has no method CONNECT
        far = ChatEndpoint("https://judge.invalid/v1", "m", attempts=1)
        with pytest.raises(InfrastructureError, match=told):
            asyncio.run(far.ask(BODY))
        assert asyncio.run(ChatEndpoint(server.url, "m").ask(BODY)).text == "Yes."


@pytest.mark.parametrize(
    ("url", "model", "key", "message"),
    [
        ("localhost", "m", "", "judge: url 'localhost': write http://host:port/v1"),
        ("http://h/v1", "", "", "judge: model is empty"),
        ("http://h/v1", "m", "NO_SUCH_KEY", "judge: there is no environment variable NO_SUCH_KEY"),
    ],
)
def test_settings_that_cannot_be(url: str, model: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_endpoint("judge", url, model, key)
