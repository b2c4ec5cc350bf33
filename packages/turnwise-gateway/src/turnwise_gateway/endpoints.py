"""Roles of an agent that another model plays, behind an OpenAI-compatible endpoint.

Its words go to the agent and nowhere else: there are no tokens of it, and nothing to train on.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnwise.chat.endpoint import BadQuestionError, ChatEndpoint, ChatTurn, LongError
from turnwise.config import RolloutConfig
from turnwise.types import ToolCall
from turnwise_gateway.dialects.conversation import own_id
from turnwise_gateway.dialects.writing import openai_call
from turnwise_gateway.requests import Choice, Ending, Message, RefusedError, Request
from turnwise_gateway.sampling import Spoken


@dataclass
class EndpointSpeaker:
    """A role that an endpoint's model plays, in one episode."""

    endpoint: ChatEndpoint
    name: str
    limits: RolloutConfig
    written: int = field(default=0, init=False)
    """Tokens of its replies, as the endpoint counts them."""

    async def speak(self, request: Request) -> Spoken:
        """Ask the endpoint. Raises RefusedError for images and for messages that are too long,
        InfrastructureError where it gives no reply."""
        if any(one.images for one in request.messages):
            raise RefusedError("an endpoint's model is shown no images", field="messages")
        body = self._body(request)
        try:
            turns = await asyncio.gather(
                *(self.endpoint.ask_for_turn(body) for _ in range(request.count))
            )
        except LongError as error:
            raise RefusedError(f"context_length_exceeded: {error}", field="messages") from None
        except BadQuestionError as error:  # what was asked is the agent's doing
            raise RefusedError(str(error), field="messages") from None
        self.written += sum(turn.written for turn in turns)
        return Spoken(tuple(map(_choice, turns)), turns[0].read)

    def _body(self, request: Request) -> dict[str, Any]:
        most = min(self.limits.max_turn_tokens, request.max_tokens or self.limits.max_turn_tokens)
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [_written(one) for one in request.messages],
            "max_tokens": most,
            "temperature": self.limits.temperature,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": one.name,
                        "description": one.description,
                        "parameters": dict(one.parameters),
                    },
                }
                for one in request.tools
            ]
        return body


def _written(message: Message) -> Mapping[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [openai_call(call) for call in message.calls]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _choice(turn: ChatTurn) -> Choice:
    """A turn as the agent gets it, each call with an id of its own; a call that cannot be read is
    shown as words."""
    calls: dict[str, ToolCall] = {}
    for one in turn.calls:
        if one.arguments is not None:
            own = own_id(one.id, calls)
            calls[own] = ToolCall(one.name, one.arguments, own)
    text = turn.text
    if len(calls) < len(turn.calls):
        calls, text = {}, f"{text}\n{json.dumps(list(turn.asked))}".strip()
    ending: Ending = "calls" if calls else "stop"
    if turn.cut_off:
        ending = "length"
    return Choice(text, calls=tuple(calls.values()), ending=ending, sampled=turn.written)
