"""A language model as the user, behind an OpenAI-compatible endpoint (`/chat/completions`).

The model is given what the customer wants and knows, and sees what was said, nothing else: no tool,
no policy. Each reply is recorded under all that it depends on, so an episode that is restored, or
played again with one seed, hears the same again; with a file, after a new start too. An endpoint
that fails is infrastructure: the episode is ungraded. Not here: the scripted user (`user.py`).
"""

import asyncio
import hashlib
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from turnwise.environments.options import Options
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.ranges import Count, NonNegative, Seconds
from turnwise.seeds import derive

STOP = "###STOP###"
"""The text that ends the conversation, as tau-bench's users write it."""
GREETING = "Hello. How can I help you?"
TRIED_AGAIN = frozenset({408, 409, 429})
"""HTTP codes that are tried again, like all from 500 on: the next answer may differ."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds between attempts, doubled each time."""
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
        self._replies = _read(Path(settings.recording)) if settings.recording else {}
        key = os.environ.get(settings.key_variable, "") if settings.key_variable else ""
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Reading the certificates takes longer than many a request: once, and where they are used.
        secure = settings.url.startswith("https://")
        self._verify = ssl.create_default_context() if secure else False

    async def begin(self, dialogue: Dialogue) -> str:
        """The user's first message. Raises InfrastructureError where it ends the conversation: the
        agent has not done anything yet."""
        return await self.hear(dialogue, GREETING) or ""

    async def hear(self, dialogue: Dialogue, said: str) -> str | None:
        """The reply to what the agent says; None ends the conversation. Both are put into the
        dialogue. Raises InfrastructureError where the endpoint gives none."""
        body = self._body(dialogue, said)
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if key not in self._replies:
            reply = await self._asked(body)
            if STOP in reply and not dialogue.said:
                where = f"the user's model at {self.settings.url}"
                raise InfrastructureError(f"{where}: it ended the conversation before it began")
            # Another episode may have been given one meanwhile: the first is everybody's.
            if self._replies.setdefault(key, reply) is reply and self.settings.recording:
                _append(Path(self.settings.recording), key, reply)
        reply = self._replies[key]
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

    async def _asked(self, body: Mapping[str, Any]) -> str:
        url = f"{self.settings.url.rstrip('/')}/chat/completions"
        problem = ""
        client = httpx2.AsyncClient(headers=self._headers, verify=self._verify, trust_env=False)
        async with client as http:
            for attempt in range(self.settings.attempts):
                if attempt:
                    await asyncio.sleep(min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE))
                try:
                    async with asyncio.timeout(self.settings.seconds):
                        answer = await http.post(url, json=body, timeout=self.settings.seconds)
                except (TimeoutError, httpx2.TimeoutException):
                    problem = f"no answer within {self.settings.seconds:g} s"
                    continue
                except httpx2.TransportError as error:
                    problem = str(error) or type(error).__name__
                    continue
                reply, problem = _reply(answer)
                if reply:
                    return reply
                if not _may_change(answer.status_code):
                    break
        raise InfrastructureError(f"the user's model at {url}: {problem}")


def _may_change(status: int) -> bool:
    """Whether the same question may be answered the next time: an answer without words may."""
    return status == 200 or status >= 500 or status in TRIED_AGAIN


def _reply(answer: httpx2.Response) -> tuple[str, str]:
    """The words of an answer, without the model's thinking; else what is wrong with it."""
    if answer.status_code != 200:
        return "", f"{answer.status_code} {' '.join(answer.text.split())[:200]}"
    try:
        choice = answer.json()["choices"][0]
        content = choice["message"]["content"]
    except (ValueError, LookupError, TypeError):
        return "", "it does not answer as /chat/completions does"
    if isinstance(choice, dict) and choice.get("finish_reason") == "length":
        return "", "an answer that was cut off: raise max_tokens"
    words = content.rpartition("</think>")[2].strip() if isinstance(content, str) else ""
    return words, "" if words else "an answer without words"


def make_model_user(settings: ModelUserSettings | None) -> ModelUser | None:
    """The user that a recipe's table describes; None without one. Raises ConfigError for a url that
    is none, a model without a name, and a key that is not there."""
    if settings is None:
        return None
    if not settings.url.startswith(("http://", "https://")):
        raise ConfigError(f"desk: user: url {settings.url!r}: write http://host:port/v1")
    if not settings.model:
        raise ConfigError("desk: user: model is empty: write the name that the endpoint has for it")
    if settings.key_variable and settings.key_variable not in os.environ:
        raise ConfigError(f"desk: user: there is no environment variable {settings.key_variable}")
    return ModelUser(settings)


def _read(path: Path) -> dict[str, str]:
    """The recorded replies. A line that was cut off by a crash is asked for again."""
    replies: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
            replies.setdefault(record["key"], record["reply"])
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
    return replies


def _append(path: Path, key: str, reply: str) -> None:
    """One write of a whole line, which begins with its own line break: after a crash as well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"key": key, "reply": reply}))
    except OSError as error:
        raise InfrastructureError(f"the recording of the user's model: {error}") from error
