"""Replies of an endpoint and their tokens. Ways to fail: the tests of `desk`."""

import asyncio
import json

import pytest

from tests.chat_server import serving
from turnwise.chat.endpoint import ChatEndpoint, Reply, check_endpoint
from turnwise.errors import ConfigError

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
