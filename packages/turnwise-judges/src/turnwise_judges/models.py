"""The models of judges: behind an OpenAI-compatible endpoint, in one of turnwise's engines, and a
function in a model's place.

In an engine what a message says is encoded apart from the tokenizer's chat template: a special
token's name in it is only text.
"""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from turnwise.chat.endpoint import CHARACTERS_PER_TOKEN, ChatEndpoint, LongError, Reply
from turnwise.engines.base import Completion, Engine, Sampling, StopReason
from turnwise.errors import ConfigError
from turnwise.scaffolds.templates import pieces
from turnwise.seeds import derive
from turnwise.tokens import Segment, Source
from turnwise_judges.base import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from turnwise.parts.components import Components

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

    async def complete(self, messages: Sequence[Message], seed: int | None = None) -> Reply:
        """Raises InfrastructureError without an answer."""
        drawn = _seed(messages) if seed is None else seed
        asked = {"messages": list(messages), "seed": drawn % 2**31}
        return await self._endpoint.ask(self._settings | asked)


def _seed(messages: Sequence[Message]) -> int:
    return derive("judge", *(message["content"] for message in messages))


_SESSIONS = count()
"""Numbers of the calls of this process; nothing but the sessions' names depends on them."""


@dataclass(frozen=True)
class Policy:
    """The policy, for a judge that asks it."""

    engine: Engine
    tokenizer: "PreTrainedTokenizerBase"
    weights: Callable[[], str]
    """Names the engine's present weights, under which answers are kept."""
    date: str = ""
    """The run's, for chat templates that write today's."""

    @classmethod
    def of(cls, components: "Components", weights: Callable[[], str]) -> "Policy":
        date = str(components.recipe.scaffold.options.get("date", ""))
        return cls(components.engine, components.tokenizer, weights, date)


class EngineModel:
    """Example: EngineModel(Policy(engine, tokenizer, lambda: "policy of step 3"))."""

    def __init__(self, policy: Policy, *, temperature: float = 0.0, max_tokens: int = 512) -> None:
        """Raises ConfigError without a chat template."""
        if not policy.tokenizer.chat_template:
            raise ConfigError(
                "judge.model: the policy's tokenizer has no chat template: name another model, "
                'with judge.model.kind = "endpoint"'
            )
        self._policy, self._tokenizer = policy, policy.tokenizer
        # Whether special tokens are split is a setting of the tokenizer, not of a call.
        self._content_tokenizer = deepcopy(policy.tokenizer)
        self._temperature = temperature
        self.max_tokens = max_tokens
        """Longest reply in tokens."""

    @property
    def identity(self) -> str:
        return f"engine {self._policy.weights()} {self._temperature} {self.max_tokens}"

    async def complete(self, messages: Sequence[Message], seed: int | None = None) -> Reply:
        """Raises LongError where the context has no room for an answer."""
        prompt = self.prompt(messages)
        sampling = Sampling(
            max_tokens=self.max_tokens,
            temperature=self._temperature,
            seed=_seed(messages) if seed is None else seed,
        )
        # A lockstep engine waits for every open session: this one is open while it is asked.
        session = f"judge/{next(_SESSIONS)}"
        self._policy.engine.open(session)
        try:
            completion = await self._policy.engine.generate(prompt, sampling, session=session)
        finally:
            self._policy.engine.close(session)
        if completion.stop_reason == StopReason.CONTEXT:
            raise LongError(
                f"the record of {len(prompt)} tokens and an answer are more than the model's "
                "context: lower judge.max_characters"
            )
        return Reply(self.reply(completion), len(prompt) + len(completion.tokens))

    def text(self, completion: Completion) -> str:
        """All that was sampled, thinking included, without the token that ends a turn."""
        ended = completion.stop_reason == StopReason.END_OF_TEXT
        text: str = self._tokenizer.decode(
            list(completion.tokens[:-1] if ended else completion.tokens),
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        return text

    def reply(self, completion: Completion) -> str:
        """The reply to be read: what comes after thinking."""
        return self.text(completion).rpartition("</think>")[2].strip()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return [token for segment in self.segments(messages) for token in segment.tokens]

    def segments(self, messages: Sequence[Message]) -> list[Segment]:
        """The prompt with the source of each token: USER what a message says, TEMPLATE the rest."""
        try:
            return self._rendered(messages)
        except ConfigError:  # families without a system message
            content = "\n\n".join(message["content"] for message in messages)
            return self._rendered([{"role": "user", "content": content}])

    def _rendered(self, messages: Sequence[Message]) -> list[Segment]:
        said = [(message["role"], "") for message in messages]
        *heads, last = pieces(self._tokenizer, said, day=self._policy.date)
        segments: list[Segment] = []
        for message, before in zip(messages, heads, strict=True):
            content = self._content_tokenizer(
                message["content"], add_special_tokens=False, split_special_tokens=True
            )
            segments += [self._template(before), Segment(content["input_ids"], Source.USER)]
        return [*segments, self._template(last)]

    def _template(self, text: str) -> Segment:
        tokens = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return Segment(tokens, Source.TEMPLATE)


Script = Callable[[Sequence[Message]], str]


class ScriptedModel:
    """Example: ScriptedModel(example_reply)."""

    def __init__(self, script: Script, name: str = "") -> None:
        """Two scripts of one name are the same for the cache."""
        self._script = script
        self.identity = f"script {name or script}"

    async def complete(self, messages: Sequence[Message], seed: int | None = None) -> Reply:
        del seed
        text = self._script(messages)
        characters = sum(len(message["content"]) for message in messages) + len(text)
        return Reply(text, characters // CHARACTERS_PER_TOKEN)


def example_reply(messages: Sequence[Message]) -> str:
    """The reply's example that ends every request: right in form, with values from the middle."""
    return messages[-1]["content"].splitlines()[-1]
