"""A judge's model behind an OpenAI-compatible endpoint."""

import json
from collections.abc import Sequence
from typing import Any

from turnwise.chat.endpoint import ChatEndpoint, Reply
from turnwise.seeds import derive
from turnwise_judges.base import Message

ATTEMPTS = 3
"""Attempts at a call while an endpoint fails; the judge's deadline holds for all of them."""


class EndpointModel:
    """Example: EndpointModel("http://127.0.0.1:8000/v1", "qwen3", seconds=60)."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        key_variable: str = "",
        temperature: float = 0.0,
        max_tokens: int = 512,
        seconds: float = 60.0,
    ) -> None:
        """`name` is the model's there; `seconds` is the deadline of an attempt."""
        self._endpoint = ChatEndpoint(
            url, "the judge", seconds=seconds, attempts=ATTEMPTS, key_variable=key_variable
        )
        self._settings: dict[str, Any] = {
            "model": name,
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        self.identity = json.dumps([url, self._settings])

    async def complete(self, messages: Sequence[Message]) -> Reply:
        """The seed follows from the messages. Raises InfrastructureError without an answer."""
        seed = derive("judge", *(message["content"] for message in messages)) % 2**31
        return await self._endpoint.ask(self._settings | {"messages": list(messages), "seed": seed})
