"""Every dialect is reached by its path, and marks what it reads with its name."""

import pytest

from turnwise.gateway.dialects.registry import DIALECTS

BODY = {"model": "m", "max_tokens": 5}
HELLO = {"role": "user", "content": "Hello."}


def test_the_paths_are_those_of_the_services() -> None:
    assert sorted(DIALECTS) == ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
    assert {dialect.PATH: dialect for dialect in DIALECTS.values()} == DIALECTS


@pytest.mark.parametrize("path", DIALECTS)
def test_a_request_knows_its_dialect(path: str) -> None:
    dialect = DIALECTS[path]
    if dialect.NAME == "responses":
        body = {"model": "m", "max_output_tokens": 5, "input": [HELLO]}
    else:
        body = {**BODY, "messages": [HELLO]}
    request = dialect.read(body)
    assert (request.dialect, request.max_tokens) == (dialect.NAME, 5)
    assert request.messages[0].text == "Hello."
