"""Every dialect is reached by its path, marks what it reads with its name, and refuses by name what
all refuse."""

from typing import Any

import pytest

from gateway_tests.dialects.serving import WEATHER, check_refused
from turnwise_gateway.dialects.registry import DIALECTS

HELLO = {"role": "user", "content": "Hello."}
BODIES: dict[str, dict[str, Any]] = {
    "chat_completions": {"model": "m", "messages": [HELLO]},
    "messages": {"model": "m", "messages": [HELLO], "max_tokens": 5},
    "responses": {"model": "m", "input": [HELLO]},
}
"""The shortest body in each dialect."""
BOUNDS = {"responses": {"max_output_tokens": 5}}
PARAMETERS = {"messages": "input_schema", "responses": "parameters"}
DEFERRED = {"messages", "responses"}
"""The dialects whose tools may be deferred, and have callers."""
by_dialect = pytest.mark.parametrize("path", DIALECTS, ids=lambda path: DIALECTS[path].NAME)


def tool(dialect: str, **fields: Any) -> dict[str, Any]:
    """A tool in the dialect's words."""
    if dialect == "chat_completions":
        function = {"name": "weather", "parameters": WEATHER, **fields}
        return {"type": "function", "function": function}
    kind = {"type": "function"} if dialect == "responses" else {}
    return {**kind, "name": "weather", PARAMETERS[dialect]: WEATHER, **fields}


def test_the_paths_are_those_of_the_services() -> None:
    assert sorted(DIALECTS) == ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
    assert {dialect.PATH: dialect for dialect in DIALECTS.values()} == DIALECTS


@by_dialect
def test_a_request_knows_its_dialect(path: str) -> None:
    dialect = DIALECTS[path]
    bound = BOUNDS.get(dialect.NAME, {"max_tokens": 5})
    request = dialect.read({**BODIES[dialect.NAME], **bound})
    assert (request.dialect, request.max_tokens) == (dialect.NAME, 5)
    assert request.messages[0].text == "Hello."


@by_dialect
def test_what_all_dialects_refuse_is_refused_by_name(path: str) -> None:
    dialect = DIALECTS[path]
    offered = tool(dialect.NAME)
    none: Any = {"type": "none"} if dialect.NAME == "messages" else "none"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"model": None}, "model"),
        ({"tools": [offered, offered]}, "tools[1].name"),
        ({"tools": [offered], "tool_choice": none}, "tool_choice"),
    ]
    place = "tools[0].function.name" if dialect.NAME == "chat_completions" else "tools[0].name"
    names = ("(", "a.b", "<x>", "x" * 129, "")
    refused += [({"tools": [tool(dialect.NAME, name=name)]}, place) for name in names]
    if dialect.NAME in DEFERRED:
        for name, value in (("defer_loading", True), ("allowed_callers", ["programmatic"])):
            fields = {"tools": [tool(dialect.NAME, **{name: value})]}
            refused.append((fields, f"tools[0].{name}"))
    for fields, field in refused:
        check_refused(lambda fields=fields: dialect.read({**BODIES[dialect.NAME], **fields}), field)
