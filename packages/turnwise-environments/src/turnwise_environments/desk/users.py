"""The user of a service desk: scripted, or a language model; and an episode with one.

The model is given what the customer wants and knows, and sees what was said, nothing else: no tool,
no policy. Each reply is recorded under all that it depends on, so an episode that is restored, or
played again with one seed, hears the same again; with a file, after a new start too. An endpoint
that fails is infrastructure: the episode is ungraded.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.chat.endpoint import ChatEndpoint, check_endpoint
from turnwise.chat.recording import Recording
from turnwise.environments.base import Environment
from turnwise.errors import InfrastructureError, NotSupportedError
from turnwise.options import Options
from turnwise.ranges import Count, NonNegative, Seconds
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step

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
    """A language model behind an OpenAI-compatible endpoint, as the user."""

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
    """The user of all episodes; holds settings and replies, and no conversation."""

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
        """The user's first message. Raises InfrastructureError where it ends the conversation."""
        return await self.hear(dialogue, GREETING) or ""

    async def hear(self, dialogue: Dialogue, said: str) -> str | None:
        """The reply to what the agent says; None ends the conversation. Raises InfrastructureError
        where the endpoint gives none."""
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
    """The user that a recipe's table describes. Raises ConfigError for a url, model or key that is
    none."""
    if settings is None:
        return None
    check_endpoint("desk: user", settings.url, settings.model, settings.key_variable)
    return ModelUser(settings)


@dataclass
class User:
    """The scripted user, all of its state: it gives one fact at a time. A word such as `code`
    brings what is asked for, anything else the next thing; what is said after the closing question
    ends the conversation."""

    waiting: list[list[str]] = field(default_factory=list)
    """[word that brings it, what is said], of what was not said yet; the question comes last."""

    def hear(self, said: str) -> str | None:
        """The reply to what the agent says; None ends the conversation."""
        if not self.waiting:
            return None
        words = [word.lower() for word, _ in self.waiting]
        asked_for = (i for i, word in enumerate(words) if word and word in said.lower())
        return self.waiting.pop(next(asked_for, 0))[1]


@dataclass
class Play:
    """The state of one episode, all of it."""

    data: dict[str, Any] = field(default_factory=dict)
    """The database, which tools read and write."""
    user: User = field(default_factory=User)
    dialogue: Dialogue = field(default_factory=Dialogue)
    over: bool = False


class Desk(Environment):
    """An environment in which the agent speaks by answering, and a user replies."""

    _play: Play
    _model: ModelUser | None

    async def step(self, action: Action) -> Step:
        """Run the calls; after an answer, what the user says, or the end."""
        if action.answer is None:
            return await self._worked(action)
        if self._model is None:
            reply = self._play.user.hear(action.answer)
        else:
            reply = await self._model.hear(self._play.dialogue, action.answer)
        if reply is None:
            self._play.over = True
            return Step(done=True)
        return Step(Observation(f"Customer: {reply}", Source.USER))

    def reseed(self, seed: int) -> None:
        """Reseed the next replies of a language model; a scripted user leaves nothing to chance."""
        self._play.dialogue.seed = seed

    async def _worked(self, action: Action) -> Step:
        return await Environment.step(self, action)

    def _check_scripted(self) -> None:
        """Raise NotSupportedError with a language model as the user: the turn at which it is
        content is not known."""
        if self._model is not None:
            name = self.spec.name
            raise NotSupportedError(f"{name}: there is no oracle with a language model as the user")
