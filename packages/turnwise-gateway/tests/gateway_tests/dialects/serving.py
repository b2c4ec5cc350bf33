"""Replies of every kind, for tests of dialects."""

from collections.abc import Callable
from typing import Any

import pytest

from turnwise.types import ToolCall
from turnwise_gateway.requests import Choice, RefusedError, Reply, SampledToken

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
"""Parameters of a tool."""
CALLS = (
    ToolCall("weather", {"city": "Zürich “Nord”, by the lake", "days": 2}, id="call_1"),
    ToolCall("clock", {}, id="call_2"),
)
WORDS = "I look that up: the weather first,\nand then the time. Ώρα — 時間, naturally."
THOUGHT = "Both tools are needed,  and neither waits for the other."
CALLING = Reply("s1-2", "policy", (Choice(WORDS, THOUGHT, CALLS, "calls", sampled=31),), 57, 1_700)
SILENT = Reply("s1-3", "policy", (Choice("", calls=CALLS, ending="calls", sampled=9),), 5, 1_700)
PLAIN = Reply("s1-4", "policy", (Choice("It is warm.", sampled=4),), 12, 1_700)
TOKENS = (
    *(SampledToken(b"It", -0.5), SampledToken(b" is", -0.25), SampledToken(b" \xc3", -2.0)),
    SampledToken(b"\xbc", -0.125),
)
"""The last two are one letter."""
TWO = Reply(
    "s1-6",
    "policy",
    (
        Choice("It is warm, and it stays warm.", sampled=9, tokens=TOKENS),
        Choice("It is", ending="length", sampled=2, tokens=TOKENS[:1]),
    ),
    12,
    1_700,
)
PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU"
    b"\x00\x00\x00\nIDATx\x9cc`\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB`\x82"
)
SCRIPTS = "Ώρα — 時間, ไทย, עברית, 👩‍🚀, e\u0301, \u2028, \u0085, \x00, \x1b[2J"
LONG = " ".join(f"{number}: über" for number in range(400))
NESTED = {"a": [{"b": [None, True, -1.5e-9, 2**70, '}{"\\']}], "": {"時": "\n\t"}}
CALL = ToolCall("weather", NESTED, "call_7")
CHOICES: dict[str, Choice] = {
    "plain": Choice("It is warm.", sampled=4),
    "nothing": Choice("", sampled=1),
    "blank": Choice(" \n ", sampled=2),
    "lines": Choice("\n\nIt\r\nis\r\n\r\nwarm.\n\n", sampled=9),
    "events": Choice('data: [DONE]\n\nevent: ping\ndata: {"type": "error"}\n\n', sampled=12),
    "json": Choice('{"role": "assistant", "content": "</s>"}', sampled=12),
    "scripts": Choice(SCRIPTS, sampled=60),
    "long": Choice(LONG, sampled=2_000),
    "cut off": Choice("It is", ending="length", sampled=2),
    "cut off in thought": Choice("", THOUGHT, ending="length", sampled=9, thought_tokens=9),
    "stopped": Choice("It is", sampled=3, stopped_at=" warm"),
    "thought": Choice("Yes.", SCRIPTS, sampled=70, thought_tokens=60),
    "thought alone": Choice("", THOUGHT, sampled=20, thought_tokens=20),
    "calls": Choice("", calls=CALLS, ending="calls", sampled=9),
    "words and calls": Choice(WORDS, calls=CALLS, ending="calls", sampled=31),
    "all": Choice(WORDS, THOUGHT, (*CALLS, CALL), "calls", 50, thought_tokens=15),
    "nested": Choice("", calls=(CALL,), ending="calls", sampled=30),
    "many calls": Choice(
        "",
        calls=tuple(ToolCall("clock", {"n": n}, f"call_{n}") for n in range(30)),
        ending="calls",
        sampled=300,
    ),
    "cut off after a call": Choice("", calls=CALLS[:1], ending="length", sampled=9),
}


def check_refused(read: Callable[[], Any], field: str) -> None:
    """A request is refused with 400, and the message begins with the field's name."""
    with pytest.raises(RefusedError) as caught:
        read()
    assert (caught.value.status, caught.value.field) == (400, field)
    assert caught.value.message.startswith(f"{field}: ")
