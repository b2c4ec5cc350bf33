"""Requests of an agent and replies to it, in the same words for every dialect: plain data; and the
parts by which messages are known when an agent sends them again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from turnwise.types import ToolCall, encodable

Role = Literal["system", "user", "assistant", "tool"]
Ending = Literal["stop", "calls", "length"]
Key = tuple[Any, ...]
MOST_SAID, MOST_NAMED = 2_000, 200
"""Characters of a refusal's reason, and of the field that it names."""


@dataclass(frozen=True)
class Message:
    """A message of a conversation, as an agent sends it."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    """The calls of an assistant's message, in order, with the ids that the agent knows them by."""
    call: str = ""
    """The id of the call that a tool's message answers."""
    images: tuple[bytes, ...] = field(default=(), repr=False)
    """Images as PNG, after the text."""


@dataclass(frozen=True)
class ToolSchema:
    """A tool of the agent's own, which runs it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of an object."""
    namespace: str = ""
    """The namespace in which the agent has it; the beginning of `name` then."""


@dataclass(frozen=True)
class Request:
    """A request for one reply, or several."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    dialect: str = ""
    model: str = ""
    max_tokens: int | None = None
    """The most tokens of a reply; None is the recipe's bound."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply, and are not part of it."""
    count: int = 1
    logprobs: bool = False
    """Whether the reply lists its tokens with their log-probabilities."""
    stream: bool = False
    ignored: tuple[str, ...] = ()
    """Fields that have no bearing here, such as `temperature`, which is the recipe's."""
    stream_usage: bool = False
    """Whether an event of its own says how many tokens there were, where that is a choice."""
    needs_call: bool = False
    """Whether a reply without a call is malformed; the prompt does not say so."""
    thoughts: bool = True
    """Whether the agent is ready for thoughts beside the words."""


@dataclass(frozen=True)
class SampledToken:
    bytes: bytes
    """UTF-8, which may end or begin inside a character."""
    logprob: float

    @property
    def text(self) -> str:
        """Its characters, with a mark in place of parts of one."""
        return self.bytes.decode(errors="replace")


@dataclass(frozen=True)
class Choice:
    """A reply. Example: Choice("It is warm.", ending="stop")."""

    text: str
    """The words for the agent, without calls and thoughts."""
    thought: str = ""
    """The words before them in which the model thought."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that the agent is to run, with ids."""
    ending: Ending = "stop"
    """`length`: the reply was cut off at a bound of tokens."""
    sampled: int = 0
    """Number of its tokens."""
    tokens: Sequence[SampledToken] = ()
    thought_tokens: int = 0
    """Number of tokens that its thought is, written by itself."""
    stopped_at: str = ""
    """The string of the request's `stop` that ended it, if one did."""


@dataclass(frozen=True)
class Reply:
    """All replies to one request. Example: Reply("3", "policy", (Choice("Yes."),), 12, 0)."""

    id: str
    """Unique in the session, made of letters, digits and hyphens."""
    model: str
    choices: tuple[Choice, ...]
    prompt_tokens: int
    created: int
    """Seconds since 1970."""

    @property
    def sampled(self) -> int:
        return sum(choice.sampled for choice in self.choices)

    @property
    def thought(self) -> int:
        return sum(choice.thought_tokens for choice in self.choices)


class RefusedError(Exception):
    """A request that is not answered: its reader is the agent's author, through the API's error.

    `status` is that of HTTP, `field` names what is wrong in the request's body, and `kind` is one
    of OpenAI's and Anthropic's words for it.
    """

    def __init__(
        self, message: str, status: int = 400, field: str = "", kind: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        # It is kept with the episode, and the agent may have written megabytes of it.
        self.message, self.field = encodable(message)[:MOST_SAID], encodable(field)[:MOST_NAMED]
        self.status, self.kind = status, kind


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
