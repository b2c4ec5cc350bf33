"""A language model as the user, behind an OpenAI-compatible endpoint (`/chat/completions`).

The model is given what the customer wants and knows, and sees what was said, nothing else: no tool,
no policy. Each reply is recorded under all that it depends on, so an episode that is restored, or
played again with one seed, hears the same again; with a file, after a new start too. An endpoint
that fails is infrastructure: the episode is ungraded. Not here: the scripted user (`user.py`).
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.chat.endpoint import ChatEndpoint, check_endpoint
from turnwise.chat.recording import Recording
from turnwise.errors import InfrastructureError
from turnwise.options import Options
from turnwise.ranges import Count, NonNegative, Seconds
from turnwise.seeds import derive

STOP = "###STOP###"
"""The text that ends the conversation, as tau-bench's users write it."""
GREETING = "Hello. How can I help you?"
PART = (
    "You play a customer who writes to a service desk. This is what you want and what you know:\n\n"
    "{instruction}\n\n"
    "Write one short message at a time, in the customer's own words. Tell what is asked for or "
    "needed next, not everything at once. What does not stand above you do not know: say so, and "
    "invent nothing. When all that you want is settled, or it is clear that it will not be, write "
    f"{STOP} and nothing else."
)


@dataclass(frozen=True)
class ModelUserSettings(Options):
    """A language model behind an OpenAI-compatible endpoint, as the user.

    Example: ModelUserSettings(url="http://127.0.0.1:8000/v1", model="qwen3").
    """

    url: str
    """The endpoint up to `/v1`."""
    model: str
    temperature: NonNegative = 0.0
    max_tokens: Count = 512
    """Longest reply in tokens, thinking included."""
    seconds: Seconds = 30.0
    """Deadline of one attempt."""
    attempts: Count = 3
    key_variable: str = ""
    """The environment variable that has the key of the endpoint, if it needs one."""
    recording: str = ""
    """A file that keeps replies beyond this run, a JSON line each."""


@dataclass
class Dialogue:
    """The state of a conversation, all of it: plain data."""

    instruction: str = ""
    seed: int = 0
    said: list[list[str]] = field(default_factory=list)
    """["agent" or "customer", words]."""


class ModelUser:
    """The user of all episodes; holds settings and replies, and no conversation.

    Example: `await ModelUser(settings).hear(dialogue, "Which order is it?")`
    """

    def __init__(self, settings: ModelUserSettings) -> None:
        self.settings = settings
        file = Path(settings.recording) if settings.recording else None
        self._replies = Recording(file, "the user's model")
        self._endpoint = ChatEndpoint(
            settings.url,
            "the user's model",
            seconds=settings.seconds,
            attempts=settings.attempts,
            key_variable=settings.key_variable,
        )

    async def begin(self, dialogue: Dialogue) -> str:
        """The user's first message. Raises InfrastructureError where it ends the conversation: the
        agent has not done anything yet."""
        return await self.hear(dialogue, GREETING) or ""

    async def hear(self, dialogue: Dialogue, said: str) -> str | None:
        """The reply to what the agent says; None ends the conversation. Both are put into the
        dialogue. Raises InfrastructureError where the endpoint gives none."""
        body = self._body(dialogue, said)
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        reply = self._replies.get(key)
        if reply is None:
            reply = (await self._endpoint.ask(body)).text
            if STOP in reply and not dialogue.said:
                where = f"the user's model at {self.settings.url}"
                raise InfrastructureError(f"{where}: it ended the conversation before it began")
            # Another episode may have been given one meanwhile.
            reply = self._replies.keep(key, reply)
        dialogue.said += [["agent", said], ["customer", reply]]
        return None if STOP in reply else reply

    def _body(self, dialogue: Dialogue, said: str) -> dict[str, Any]:
        roles = {"agent": "user", "customer": "assistant"}
        lines = [*dialogue.said, ["agent", said]]
        messages = [{"role": roles[who], "content": words} for who, words in lines]
        system = {"role": "system", "content": PART.format(instruction=dialogue.instruction)}
        return {
            "model": self.settings.model,
            "messages": [system, *messages],
            "temperature": self.settings.temperature,
            "max_tokens": self.settings.max_tokens,
            "seed": derive(dialogue.seed, "user", len(lines)) % 2**31,
        }


def make_model_user(settings: ModelUserSettings | None) -> ModelUser | None:
    """The user that a recipe's table describes; None without one. Raises ConfigError for a url that
    is none, a model without a name, and a key that is not there."""
    if settings is None:
        return None
    check_endpoint("desk: user", settings.url, settings.model, settings.key_variable)
    return ModelUser(settings)
