"""The bounds of a request, checked before anything is rendered."""

from collections.abc import Mapping
from typing import Any

from turnwise_gateway.requests import RefusedError, Request

MOST_DEPTH = 64
"""Objects and lists inside one another."""
MOST_PARTS = 200_000
"""Opening brackets in a body."""
MOST_TOOLS = 1_024
MOST_MESSAGES = 4_096
MOST_STOPS = 64
MOST_REWARD_PARTS = 1_024
CHARACTERS_PER_TOKEN = 16
"""More than this is no text: a longer request cannot fit into its context."""


def check_depth(value: Any, field: str = "") -> None:
    """Raise RefusedError for JSON that is nested more than MOST_DEPTH deep."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        inside = [one.values() if isinstance(one, Mapping) else one for one in level]
        level = [one for part in inside for one in part if isinstance(one, Mapping | list | tuple)]
        if not level:
            return
    place = f"{field}: " if field else ""
    raise RefusedError(f"{place}is nested more than {MOST_DEPTH} deep", field=field)


def check_body(data: bytes | bytearray) -> None:
    """Raise RefusedError for the JSON of more values than any conversation has."""
    if data.count(b"{") + data.count(b"[") > MOST_PARTS:
        raise RefusedError(f"the body has more than {MOST_PARTS} objects and lists", 413)


def check_request(request: Request, most_tokens: int) -> None:
    """Raise RefusedError for more tools, messages, stop strings or characters than one may have
    whose context is of `most_tokens`."""
    for name, count, most in (
        ("tools", len(request.tools), MOST_TOOLS),
        ("messages", len(request.messages), MOST_MESSAGES),
        ("stop", len(request.stop), MOST_STOPS),
    ):
        if count > most:
            raise RefusedError(f"{name}: {count} are more than {most}", field=name)
    characters = sum(len(one.text) for one in request.messages)
    calls = [one for said in request.messages for one in said.calls]
    characters += sum(len(one.name) + len(one.id) + len(str(one.arguments)) for one in calls)
    characters += sum(map(len, request.stop))
    characters += sum(len(one.description) + len(str(one.parameters)) for one in request.tools)
    if characters > CHARACTERS_PER_TOKEN * most_tokens:
        raise RefusedError(
            f"context_length_exceeded: {characters} characters are too many for a context of "
            f"{most_tokens} tokens",
            field="messages",
        )
