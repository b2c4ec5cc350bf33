"""The parts of messages by which they are known when an agent sends them again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise_gateway.requests import Message

Key = tuple[Any, ...]


def keys_of(messages: Sequence[Message]) -> list[Key]:
    """The parts by which the messages of a conversation are known again. A result is known by the
    place of its call, as agents may give calls other ids."""
    keys, called = [], list[str]()
    for message in messages:
        if message.role == "assistant":
            called = [call.id for call in message.calls]
        place = called.index(message.call) if message.call in called else -1
        keys.append((*key_of(message), place))
    return keys


def key_of(message: Message) -> Key:
    """The parts of a message that do not depend on others."""
    calls = tuple((one.name, _plain(one.arguments)) for one in message.calls)
    return message.role, message.text.strip(), calls, message.images


def _plain(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON in which a whole number is one however it is written: JavaScript sends 1.0
    back as 1."""
    return json.dumps(json.loads(json.dumps(arguments), parse_float=_number), sort_keys=True)


def _number(written: str) -> float | int:
    number = float(written)
    return int(number) if number.is_integer() else number
