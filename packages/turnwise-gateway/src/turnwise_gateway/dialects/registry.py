"""The dialects by the path under which agents reach them."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from turnwise_gateway.dialects import chat_completions, messages, responses
from turnwise_gateway.requests import RefusedError, Reply, Request


class Dialect(Protocol):
    """A module that reads requests in one format and writes replies in it."""

    NAME: str
    PATH: str

    def read(self, body: Mapping[str, Any]) -> Request:
        """The request in a body. Raises RefusedError that names a field."""
        ...

    def body(self, request: Request, reply: Reply) -> dict[str, Any]:
        """The reply as a whole."""
        ...

    def events(self, request: Request, reply: Reply) -> Iterator[str]:
        """The reply in server-sent events."""
        ...

    def error(self, refused: RefusedError) -> dict[str, Any]:
        """The body of an error."""
        ...


DIALECTS: Mapping[str, Dialect] = {
    chat_completions.PATH: chat_completions,
    responses.PATH: responses,
    messages.PATH: messages,
}
