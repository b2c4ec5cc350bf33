"""Replies that an engine samples for a role, kept as exchanges of contexts."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from turnwise.config import RolloutConfig
from turnwise.engines.base import PATIENCE, Completion, Engine, Sampling, StopReason
from turnwise.errors import InfrastructureError
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.tools.tool import in_thread
from turnwise.types import Action, ToolCall
from turnwise_gateway.contexts import Contexts, Exchange
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Choice, Ending, Message, Request, SampledToken

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from turnwise_gateway.token_bytes import TokenBytes

NO_CALL = "the agent's tool_choice demands a call of a tool"


class EngineSessions:
    """The sessions of one episode, whose own one, `name`, is open at first.

    A request has the own session, in which what the last one left in the cache is there still; what
    is asked at the same time has one of its own. An engine in lockstep waits for every open
    session, so the own one stays open between requests, as an agent is expected to ask again, but
    not while the agent waits for others.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._open, self._taken = True, False
        self._under_way = self._made = 0

    @contextmanager
    def one(self) -> Iterator[str]:
        """Inside, a session is this request's alone."""
        self._under_way += 1
        own = not self._taken
        name = self._name if own else self._another()
        if own:
            self._taken = True
            self._open_own()
        else:
            self._engine.open(name)
        try:
            yield name
        finally:
            self._under_way -= 1
            self._taken = self._taken and not own
            if not self._under_way:
                self._open_own()
            elif own:
                self._close_own()
            if not own:
                self._engine.close(name)

    def _another(self) -> str:
        self._made += 1
        return f"{self._name}/{self._made}"

    def _open_own(self) -> None:
        if not self._open:
            self._engine.open(self._name)
            self._open = True

    def _close_own(self) -> None:
        if self._open:
            self._engine.close(self._name)
            self._open = False


class ShortSessions:
    """Sessions of an engine that are open for one request each."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name, self._made = engine, name, 0

    @contextmanager
    def one(self) -> Iterator[str]:
        """Inside, a session is this request's alone."""
        self._made += 1
        name = f"{self._name}/{self._made}"
        self._engine.open(name)
        try:
            yield name
        finally:
            self._engine.close(name)


@dataclass(frozen=True)
class Spoken:
    choices: tuple[Choice, ...]
    prompt_tokens: int
    exchanges: Sequence[Exchange] = ()
    """The exchanges of the choices; none for a model whose tokens are not ours."""


class Sampler:
    """A role whose replies an engine samples."""

    def __init__(
        self,
        role: str,
        engine: Engine,
        sessions: EngineSessions | ShortSessions,
        contexts: Contexts,
        scaffolds: Scaffolds,
        tokenizer: "PreTrainedTokenizerBase",
        limits: RolloutConfig,
        seed: int,
    ) -> None:
        """`role` is empty where there is one alone."""
        self.role, self.contexts = role, contexts
        self._engine, self._sessions = engine, sessions
        self._scaffolds, self._tokenizer = scaffolds, tokenizer
        self._limits, self._seed = limits, seed
        self._prompts: Counter[str] = Counter()

    async def speak(self, request: Request) -> Spoken:
        """Sample the reply. Raises RefusedError for messages and tools that cannot be rendered,
        InfrastructureError where the engine fails."""
        tools, scaffold = await in_thread(partial(self._scaffolds.of, request))
        most = self._limits.max_tokens
        async with self.contexts.beginning:  # or two could go on from one end of a context
            exchanges = [
                await self.contexts.begin(tools, scaffold, request.messages, most, self.role)
                for _ in range(request.count)
            ]
        try:
            async with asyncio.TaskGroup() as group:
                sampled = [
                    group.create_task(self._sample(scaffold, one, request)) for one in exchanges
                ]
        except ExceptionGroup as errors:
            failed, others = errors.split(InfrastructureError)
            if failed is None or others is not None:
                raise (others or errors).exceptions[0] from None  # a bug
            raise InfrastructureError(str(failed.exceptions[0])) from None
        return Spoken(tuple(one.result() for one in sampled), exchanges[0].start, exchanges)

    async def _sample(self, scaffold: Scaffold, exchange: Exchange, request: Request) -> Choice:
        """Sample a reply, and keep it; nothing stays of one that was not finished."""
        tokens = exchange.context.tokens
        prompt = tokens.ids.tolist()
        limits = self._limits
        room = limits.max_tokens - len(prompt)
        most = min(limits.max_turn_tokens, room, request.max_tokens or room)
        sampling = Sampling(
            max_tokens=most,
            temperature=limits.temperature,
            top_k=limits.top_k,
            top_p=limits.top_p,
            min_p=limits.min_p,
            stop=(*scaffold.stop, *request.stop),
            seed=self._sampling_seed(prompt),
            returns_kept=limits.returns_kept,
        )
        shown = tokens.images_in(slice(0, len(tokens)))
        images = {"images": shown} if shown else {}
        completion = None
        try:
            with self._sessions.one() as session:
                async with asyncio.timeout(PATIENCE * limits.max_seconds):
                    completion = await self._engine.generate(
                        prompt, sampling, session=session, **images
                    )
        except TimeoutError:
            raise InfrastructureError("the engine hangs") from None
        finally:
            if completion is None:
                self.contexts.forget(exchange)
        name = f"{self.role}-{exchange.number}" if self.role else f"{exchange.number}"
        action = _with_ids(scaffold.parse(completion.tokens), name)
        choice = self._choice(action, completion, request)
        if request.needs_call and not action.calls and action.error is None:
            action = replace(action, answer=None, error=NO_CALL)
        message = Message("assistant", choice.text, choice.calls)
        self.contexts.finish(exchange, completion, action, message)
        return choice

    def _sampling_seed(self, prompt: Sequence[int]) -> int:
        """A seed for what follows a prompt, another one each time that it comes again: whatever
        order requests at the same time arrive in, each has its own."""
        digest = hashlib.sha256(f"{self.role}{prompt!r}".encode()).hexdigest()
        self._prompts[digest] += 1
        return derive(self._seed, "sampling", digest, self._prompts[digest])

    def _choice(self, action: Action, completion: Completion, request: Request) -> Choice:
        """Show the agent its part of a reply: the answer, or calls; all of it where it is neither,
        as an agent has no other way to see what is wrong."""
        text = action.answer or ""
        if action.error is not None:
            text = action.text.removesuffix(str(self._tokenizer.eos_token or ""))
        stopped_at = _first(request.stop, action.text)
        text = text.partition(stopped_at)[0] if stopped_at else text
        ending: Ending = "calls" if action.calls else "stop"
        if completion.stop_reason in (StopReason.MAX_TOKENS, StopReason.CONTEXT):
            ending = "length"
        listed: tuple[SampledToken, ...] = ()
        if request.logprobs:
            pairs = zip(completion.tokens, completion.logprobs, strict=True)
            listed = tuple(SampledToken(self._bytes(one), p) for one, p in pairs)
        thought = "" if action.error is not None else action.thought
        return Choice(
            text,
            thought=thought,
            thought_tokens=len(self._tokenizer.encode(thought, add_special_tokens=False)),
            calls=action.calls,
            ending=ending,
            stopped_at=stopped_at,
            sampled=len(completion.tokens),
            tokens=listed,
        )

    @cached_property
    def _bytes(self) -> "TokenBytes":
        from turnwise_gateway.token_bytes import TokenBytes  # imports torch

        return TokenBytes(self._tokenizer)


def _first(stops: Sequence[str], text: str) -> str:
    """The string at whose end sampling stopped, which may be inside a token; empty for none.

    >>> _first((".", "warm"), "It is warm. And")
    'warm'
    """
    found = [(text.find(one) + len(one), one) for one in stops if one in text]
    return min(found, default=(0, ""))[1]


def _with_ids(action: Action, name: str) -> Action:
    calls = tuple(
        ToolCall(call.name, call.arguments, f"call_{name}_{place}")
        for place, call in enumerate(action.calls)
    )
    return Action(action.text, action.thought, calls, action.answer, action.error)
