"""The strict reading of a judge's reply: one line, one JSON object, the keys asked for, the nonce.
Nothing is looked for in a longer text or repaired: a verdict that the judge copied from the agent
is not taken for its own."""

from typing import Any

from turnwise.strict_json import DECODER
from turnwise_judges.base import AnswerForm, MalformedReplyError, T

LONGEST = 20_000
"""Characters."""


def read_reply(text: str, nonce: str, form: AnswerForm[T]) -> tuple[T, str]:
    """The value and the reason of a reply. Raises MalformedReplyError for any other text."""
    line = text.strip()
    if len(line) > LONGEST:
        raise MalformedReplyError("it is too long")
    if len(line.splitlines()) != 1:
        raise MalformedReplyError("it is not a single line")
    values = _object(line)
    if values.pop("nonce", None) != nonce:
        raise MalformedReplyError("it does not bear the mark")
    reason = values.pop("reason", None)
    if not isinstance(reason, str):
        raise MalformedReplyError("its reason is not a text")
    if values.keys() != form.example.keys():
        raise MalformedReplyError("its keys are not those of the example")
    return form.read(values), reason


def _object(line: str) -> dict[str, Any]:
    try:
        value = DECODER.decode(line)
    except (ValueError, RecursionError):
        raise MalformedReplyError("it is not a JSON object with each key once") from None
    if not isinstance(value, dict):
        raise MalformedReplyError("it is not a JSON object with each key once")
    return value
