"""An OpenAI-compatible endpoint (`/chat/completions`): messages in, words or calls out.

What may be better the next time is tried again, within a bound.
"""

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.strict_json import DECODER
from turnwise.types import encodable

TRIED_AGAIN = frozenset({408, 409, 429})
"""HTTP codes that are tried again, like all from 500 on: the next answer may differ."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds between attempts, doubled each time."""
CHARACTERS_PER_TOKEN = 4
"""Estimate for endpoints that do not say how many tokens an answer took."""
CUT_OFF, WITHOUT_WORDS = "an answer that was cut off: raise max_tokens", "an answer without words"
"""Problems of a model that answered."""
NO_COMPLETION = "it does not answer as /chat/completions does"
ASKERS_FAULT = frozenset({400, 413, 422})
"""HTTP codes for messages that an endpoint does not take."""
TOO_LONG = ("context_length_exceeded", "maximum context length")
"""Words of endpoints for messages that are longer than the model's context."""


class NoWordsError(InfrastructureError):
    """A model answered, and nothing of it can be used: it said nothing, or was cut off."""


class BadQuestionError(InfrastructureError):
    """An endpoint that has answered others refuses these messages."""


class LongError(InfrastructureError):
    """The messages are longer than the model's context."""


@dataclass(frozen=True)
class Reply:
    """An answer. Example: Reply("Yes.", tokens=212)."""

    text: str
    """Its words, without the model's thinking."""
    tokens: int
    """Tokens of question and answer together; an estimate where the endpoint does not say."""


@dataclass(frozen=True)
class AskedCall:
    """A call that the model asks for. Example: AskedCall("call_1", "search", {"query": "x"})."""

    id: str
    """The endpoint's name of it."""
    name: str
    arguments: Mapping[str, Any] | None
    """None where the model wrote something else than a JSON object."""


@dataclass(frozen=True)
class ChatTurn:
    """One turn of the model."""

    text: str
    """Its words, without thinking between tags."""
    calls: tuple[AskedCall, ...] = ()
    cut_off: bool = False
    """Whether it reached the endpoint's limit of tokens."""
    asked: tuple[Mapping[str, Any], ...] = ()
    """The calls as they came, which go back into the conversation."""
    read: int = 0
    written: int = 0
    """Tokens of conversation and turn, as the endpoint counts them; 0 where it does not."""


Found = TypeVar("Found")
Read = Callable[[httpx2.Response], tuple[Found | None, str]]
"""Reads an answer: what it has, or else what is wrong with it."""


class ChatEndpoint:
    """One endpoint. Example: ChatEndpoint("http://127.0.0.1:8000/v1", "the judge"), whose `ask`
    takes a body such as {"model": "qwen3", "messages": [...]}."""

    def __init__(
        self,
        url: str,
        who: str,
        *,
        seconds: float = 30.0,
        attempts: int = 3,
        key_variable: str = "",
    ) -> None:
        """`url` is the endpoint up to `/v1`, `who` names the model in errors, `seconds` is the
        deadline of one attempt, `key_variable` the environment variable that has the key."""
        self.place = f"{who} at {url.rstrip('/')}/chat/completions"
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._seconds, self._attempts = seconds, attempts
        key = os.environ.get(key_variable, "") if key_variable else ""
        self._key, self._answered = key, False
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Reading the certificates takes longer than many a request: once, and where they are used.
        self._verify = ssl.create_default_context() if url.startswith("https://") else False

    async def ask(self, body: Mapping[str, Any]) -> Reply:
        """The endpoint's answer; else InfrastructureError, without words NoWordsError."""
        return await self._asked(body, _reply)

    async def ask_for_turn(self, body: Mapping[str, Any]) -> ChatTurn:
        """A turn of a model with the body's `tools`, of which it may make nothing. Raises
        InfrastructureError where there is none, LongError where the messages are too long."""
        return await self._asked(body, _turn)

    def _client(self) -> httpx2.AsyncClient:
        # An endpoint without a certificate is in the same network: no proxy leads to it.
        proxied = self._verify is not False
        try:
            return httpx2.AsyncClient(headers=self._headers, verify=self._verify, trust_env=proxied)
        except (ImportError, ValueError) as error:
            raise InfrastructureError(f"{self.place}: HTTPS_PROXY or ALL_PROXY: {error}") from None

    async def _asked(self, body: Mapping[str, Any], read: Read[Found]) -> Found:
        problem, status = "", 0
        async with self._client() as http:
            for attempt in range(self._attempts):
                if attempt:
                    await asyncio.sleep(min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE))
                try:
                    async with asyncio.timeout(self._seconds):
                        answer = await http.post(self._url, json=body, timeout=self._seconds)
                except (TimeoutError, httpx2.TimeoutException):
                    problem = f"no answer within {self._seconds:g} s"
                    continue
                except httpx2.TransportError as error:
                    problem = str(error) or type(error).__name__
                    continue
                (found, problem), status = read(answer), answer.status_code
                if found is not None:
                    self._answered = True
                    return found
                if status not in (200, *TRIED_AGAIN) and status < 500:
                    break  # the next answer is the same; one without words may change
        failed = NoWordsError if problem in (CUT_OFF, WITHOUT_WORDS) else InfrastructureError
        if self._answered and status in ASKERS_FAULT:
            failed = BadQuestionError
        if any(sign in problem for sign in TOO_LONG):
            failed = LongError
        if self._key:
            problem = problem.replace(self._key, "KEY")  # an endpoint may say which one it refuses
        raise failed(f"{self.place}: {problem}")


def check_endpoint(where: str, url: str, model: str, key_variable: str) -> None:
    """Raise ConfigError for a url that is none, a model without a name, and a key that is not
    there; `where` begins the message, as in "desk: user"."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: url {url!r}: write http://host:port/v1")
    if not model:
        raise ConfigError(f"{where}: model is empty: write the name that the endpoint has for it")
    if key_variable and key_variable not in os.environ:
        raise ConfigError(f"{where}: there is no environment variable {key_variable}")


def _refusal(answer: httpx2.Response) -> str:
    return f"{answer.status_code} {' '.join(answer.text.split())[:200]}"


def _turn(answer: httpx2.Response) -> tuple[ChatTurn | None, str]:
    """The turn of an answer; else what is wrong with it."""
    if answer.status_code != 200:
        return None, _refusal(answer)
    return read_turn(answer), NO_COMPLETION


def _reply(answer: httpx2.Response) -> tuple[Reply | None, str]:
    """The words of an answer, without the model's thinking; else what is wrong with it."""
    if answer.status_code != 200:
        return None, _refusal(answer)
    try:
        content = answer.json()
        choice = content["choices"][0]
        said = choice["message"]["content"]
    except (ValueError, LookupError, TypeError):
        return None, NO_COMPLETION
    if isinstance(choice, dict) and choice.get("finish_reason") == "length":
        return None, CUT_OFF
    words = _words(said)
    return (Reply(words, _tokens(answer, content)) if words else None), WITHOUT_WORDS


def _words(said: Any) -> str:
    return said.rpartition("</think>")[2].strip() if isinstance(said, str) else ""


def _tokens(answer: httpx2.Response, content: Mapping[str, Any]) -> int:
    """The tokens of question and answer, as the endpoint counts them, or estimated."""
    written = len(answer.request.content) + len(answer.content)
    return _count(content, "total_tokens") or written // CHARACTERS_PER_TOKEN


def read_turn(answer: httpx2.Response) -> ChatTurn | None:
    """The turn of an answer of `/chat/completions`; None for an answer that is none."""
    try:
        # By way of its text, in which half a character can be replaced wherever it stands.
        content = json.loads(encodable(json.dumps(answer.json(), ensure_ascii=False)))
        choice = content["choices"][0]
        message = choice["message"]
        asked = message.get("tool_calls") or []
        calls = tuple(_call(one) for one in asked)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    words = _words(message.get("content"))
    cut_off = choice.get("finish_reason") == "length"
    read, written = (_count(content, name) for name in ("prompt_tokens", "completion_tokens"))
    return ChatTurn(words, calls, cut_off, tuple(asked), read, written)


def _call(asked: Mapping[str, Any]) -> AskedCall:
    function = asked["function"]
    try:
        arguments = DECODER.decode(function.get("arguments") or "{}")
        json.dumps(arguments, ensure_ascii=False).encode()  # half of a character is refused
    except (ValueError, RecursionError):
        arguments = None
    given = arguments if isinstance(arguments, dict) else None
    return AskedCall(str(asked["id"]), str(function["name"]), given)


def _count(content: Mapping[str, Any], name: str) -> int:
    usage = content.get("usage")
    counted = usage.get(name) if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) and counted > 0 else 0
