"""One episode of an agent: its requests are answered by the engine, and kept as contexts.

What an agent asks for is sampled under the recipe's settings, within the recipe's budgets; what it
cannot have is refused with the reason. Not here: the formats in which it asks (`dialects/`), and
how the agent is run (`rollout/agent_episode.py`).
"""

import asyncio
import hashlib
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.capture import Capture
from turnwise.config import RolloutConfig
from turnwise.engines.base import PATIENCE, Completion, Engine, Sampling, StopReason
from turnwise.errors import InfrastructureError
from turnwise.gateway.contexts import Contexts, Exchange
from turnwise.gateway.engine_sessions import EngineSessions
from turnwise.gateway.rendering import Scaffolds
from turnwise.gateway.requests import (
    Choice,
    Ending,
    Message,
    RefusedError,
    Reply,
    Request,
    SampledToken,
)
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.tokens import Tokens
from turnwise.types import Action, Outcome, ToolCall, Turn

REPLY_PREFIX = re.compile("^(chatcmpl-|resp_|msg_)")
"""The words before a reply's id in the dialects."""
MODEL = "policy"
"""The only model that there is, by its name."""


@dataclass(frozen=True)
class GivenReward:
    """A reward that the agent's side has given. Example: GivenReward(0.5, success=False)."""

    reward: float
    success: bool
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Counts of what an agent's requests were, by name."""

    dialects: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    """Requests in which a tool was offered."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Requests with a field that has no bearing here."""
    contexts: Counter[str] = field(default_factory=Counter)
    """Contexts by the reason why each was begun."""
    endings: Counter[str] = field(default_factory=Counter)
    """Replies by how they ended: `stop`, `calls`, `length`, or `malformed`."""

    def count(self, request: Request, exchanges: Sequence[Exchange], reply: Reply) -> None:
        """Add one."""
        self.dialects[request.dialect] += 1
        self.tools.update(tool.name for tool in request.tools)
        self.ignored.update(request.ignored)
        for exchange, choice in zip(exchanges, reply.choices, strict=True):
            malformed = exchange.action is not None and exchange.action.error is not None
            self.endings["malformed" if malformed else choice.ending] += 1
            if exchange.context.own[0] is exchange:
                self.contexts[exchange.context.cause] += 1


@dataclass
class Session:
    """The requests of one episode, until it is closed."""

    name: str
    """The engine's session, open, which is the episode's own."""
    seed: int
    limits: RolloutConfig
    engine: Engine
    scaffolds: Scaffolds
    tokenizer: PreTrainedTokenizerBase
    leave_out_thoughts: bool = False
    """Whether thoughts before the last words of a user are left out; else they stay as sampled."""
    rewarded_by_agent: bool = False
    """Whether rewards are given through the address; else they are the verifier's."""
    spans: Any = None
    """The episode's spans of OpenTelemetry (`spans.py`), if any are asked for."""
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    """Seconds since 1970."""
    reward: GivenReward | None = field(default=None, init=False)
    """The reward that was given through the gateway."""
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the agent says that it is done."""
    closed: bool = field(default=False, init=False)
    limit: Outcome | None = field(default=None, init=False)
    """The budget at which a request was refused, unless a later reply was given."""
    failure: str = field(default="", init=False)
    """The failure of the engine, unless a later reply was given."""
    bug: BaseException | None = field(default=None, init=False)
    """An error of turnwise's own in answering."""

    def __post_init__(self) -> None:
        self.contexts = Contexts(self.leave_out_thoughts)
        self.usage = Usage()
        self._sessions = EngineSessions(self.engine, self.name)
        self._running: set[asyncio.Task[Reply]] = set()
        self._asked: dict[str, asyncio.Task[Reply]] = {}
        self._exchanges: dict[str, list[Exchange]] = {}
        self._prompts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._calls = self._retried = self._replies = 0
        self._waiting = 0
        self._since = self._waited = 0.0

    @property
    def waited(self) -> float:
        """Seconds so far in which the agent waited for a reply."""
        return self._waited + (self.clock() - self._since if self._waiting else 0.0)

    @property
    def hung_up(self) -> bool:
        """Whether the agent went away from a reply that it had asked for."""
        return bool(self._refused["unfinished"]) or any(
            one.action is not None and not one.delivered for one in self.contexts.exchanges
        )

    async def ask(self, request: Request, again: bool = False) -> Reply:
        """Answer a request. One that comes `again`, because no reply to the first arrived, gets the
        reply to the first. Raises RefusedError for whatever is not answered."""
        key = _key(request)
        answer = self._asked.get(key) if again else None
        if answer is not None:
            self._retried += 1
        else:
            answer = self._asked[key] = asyncio.create_task(self._answer(request))
            self._running.add(answer)
            answer.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(answer)
        except RefusedError as refused:
            self.refused(refused)
            self._asked.pop(key, None)
            raise
        except Exception as error:
            self.bug = error  # the episode raises it, whatever the agent makes of it
            raise
        except asyncio.CancelledError:
            if not answer.cancelled():
                raise  # the one that asked is gone; the answer is kept for when it comes again
            raise _ended() from None

    def refused(self, refused: RefusedError) -> None:
        """Count a request that was refused, here or before it could be asked."""
        self._refused[refused.field or refused.kind] += 1

    def arrived(self, reply: Reply) -> None:
        """Note that the agent has a reply."""
        for exchange in self._exchanges.get(reply.id, ()):
            exchange.delivered = True

    def count(self, request: Request) -> int:
        """The tokens that a request's messages are. Raises RefusedError where they cannot be
        rendered."""
        self._check_open()
        tools, scaffold = self.scaffolds.of(request)
        return Contexts().begin(tools, scaffold, request.messages, 2**31).start

    def rewarded(self, reward: GivenReward) -> None:
        """Keep the reward of the episode. Raises RefusedError where it is not the agent's."""
        self._check_rewarding()
        self.reward = reward

    def reward_reply(self, reply: str, reward: float) -> None:
        """Keep the reward of one turn, by the id of the reply, before which each dialect has a word
        of its own. Raises RefusedError for an id of none, and where rewards are not the agent's."""
        self._check_rewarding()
        exchanges = self._exchanges.get(REPLY_PREFIX.sub("", reply))
        if not exchanges:
            raise RefusedError(f"there is no reply {reply!r}", 404, "reply", "not_found_error")
        for exchange in exchanges:
            exchange.reward = reward

    async def close(self) -> None:
        """Refuse what comes from now on, and stop what is under way. Idempotent."""
        self.closed = True
        running = list(self._running)
        if running:
            self._refused["unfinished"] += len(running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def record(self) -> tuple[Tokens, tuple[Turn, ...], Capture]:
        """The episode's tokens, its turns, and the account of both."""
        tokens, turns, lost = self.contexts.record()
        dropped = {"undelivered": lost} if lost else {}
        capture = Capture(
            self._calls, int(tokens.mask.sum()) + lost, dropped, dict(self._refused), self._retried
        )
        return tokens, turns, capture

    def _check_open(self) -> None:
        if self.closed or self.ended.is_set():
            raise _ended()

    def _check_rewarding(self) -> None:
        self._check_open()
        if not self.rewarded_by_agent:
            raise RefusedError(
                'rewards are the verifier\'s: set agent.reward = "agent" to give them here',
                403,
                "reward",
                "permission_error",
            )

    def _check_budget(self, request: Request) -> None:
        """Raise RefusedError where the episode's budget has no room for a request."""
        exchanges = self.contexts.exchanges
        if len(exchanges) + request.count > self.limits.max_turns:
            self.limit = Outcome.TRUNCATED_TURNS
            raise _over("rollout.max_turns", self.limits.max_turns)
        called = sum(len(one.action.calls) for one in exchanges if one.action is not None)
        if called > self.limits.max_tool_calls:
            self.limit = Outcome.TRUNCATED_TOOL_CALLS
            raise _over("rollout.max_tool_calls", self.limits.max_tool_calls)

    async def _answer(self, request: Request) -> Reply:
        self._check_open()
        self._check_model(request)
        self._check_budget(request)
        tools, scaffold = self.scaffolds.of(request)
        exchanges = [self._begin(tools, scaffold, request) for _ in range(request.count)]
        self._count_waiting(+1)
        try:
            async with asyncio.TaskGroup() as group:
                sampled = [
                    group.create_task(self._sample(scaffold, one, request)) for one in exchanges
                ]
        except ExceptionGroup as errors:
            failed, others = errors.split(InfrastructureError)
            if failed is None or others is not None:
                raise  # a bug
            self.failure = str(failed.exceptions[0])
            raise RefusedError(self.failure, 503, kind="api_error") from None
        finally:
            self._count_waiting(-1)
        self.failure, self.limit = "", None
        self._calls += 1
        reply = Reply(
            f"{self._replies}",
            MODEL,
            tuple(one.result() for one in sampled),
            exchanges[0].start,
            int(self.now()),
        )
        self._replies += 1
        self.usage.count(request, exchanges, reply)
        self._exchanges[reply.id] = exchanges
        return reply

    def _check_model(self, request: Request) -> None:
        """Raise RefusedError for another model than the policy."""
        if request.model not in ("", MODEL):
            raise RefusedError(
                f"there is no model {request.model!r}: the only one is {MODEL!r}",
                404,
                "model",
                "not_found_error",
            )

    def _begin(self, tools: str, scaffold: Scaffold, request: Request) -> Exchange:
        try:
            return self.contexts.begin(tools, scaffold, request.messages, self.limits.max_tokens)
        except RefusedError as refused:
            if refused.message.startswith("context_length_exceeded"):
                self.limit = Outcome.TRUNCATED_TOKENS
            raise

    async def _sample(self, scaffold: Scaffold, exchange: Exchange, request: Request) -> Choice:
        """Sample a reply, and keep it; nothing stays of one that was not finished."""
        tokens = exchange.context.tokens
        prompt = tokens.ids.tolist()
        limits = self.limits
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
        )
        shown = tokens.images_in(slice(0, len(tokens)))
        images = {"images": shown} if shown else {}
        completion = None
        try:
            with self._sessions.one() as session:
                async with asyncio.timeout(PATIENCE * limits.max_seconds):
                    completion = await self.engine.generate(
                        prompt, sampling, session=session, **images
                    )
        except TimeoutError:
            raise InfrastructureError("the engine hangs") from None
        finally:
            if completion is None:
                self.contexts.forget(exchange)
        action = _with_ids(scaffold.parse(completion.tokens), exchange.number)
        choice = self._choice(action, completion, request)
        message = Message("assistant", choice.text, choice.calls)
        self.contexts.finish(exchange, completion, action, message)
        return choice

    def _sampling_seed(self, prompt: Sequence[int]) -> int:
        """A seed for what follows a prompt, another one each time that it comes again: whatever
        order requests at the same time arrive in, each has its own."""
        digest = hashlib.sha256(repr(prompt).encode()).hexdigest()
        self._prompts[digest] += 1
        return derive(self.seed, "sampling", digest, self._prompts[digest])

    def _choice(self, action: Action, completion: Completion, request: Request) -> Choice:
        """Show the agent its part of a reply: the answer, or calls; all of it where it is neither,
        as an agent has no other way to see what is wrong."""
        text = action.answer or ""
        if action.error is not None:
            text = action.text.removesuffix(str(self.tokenizer.eos_token or ""))
        stopped_at = next((end for end in request.stop if text.endswith(end)), "")
        text = text.removesuffix(stopped_at)
        ending: Ending = "calls" if action.calls else "stop"
        if completion.stop_reason in (StopReason.MAX_TOKENS, StopReason.CONTEXT):
            ending = "length"
        listed: tuple[SampledToken, ...] = ()
        if request.logprobs:
            pairs = zip(completion.tokens, completion.logprobs, strict=True)
            listed = tuple(SampledToken(self.tokenizer.decode([one]), p) for one, p in pairs)
        return Choice(
            text,
            thought="" if action.error is not None else action.thought,
            calls=action.calls,
            ending=ending,
            stopped_at=stopped_at,
            sampled=len(completion.tokens),
            tokens=listed,
        )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the agent waits for something that is no work of its own."""
        self._count_waiting(+1)
        try:
            yield
        finally:
            self._count_waiting(-1)

    def _count_waiting(self, change: int) -> None:
        """Begin or end a request; seconds count once where several are under way."""
        now = self.clock()
        if self._waiting:
            self._waited += now - self._since
        self._waiting, self._since = self._waiting + change, now


def _ended() -> RefusedError:
    return RefusedError("the episode has ended", 403, kind="permission_error")


def _over(name: str, most: int) -> RefusedError:
    return RefusedError(
        f"the episode's budget is spent: {name} = {most}", 403, name, "permission_error"
    )


def _with_ids(action: Action, number: int) -> Action:
    calls = tuple(
        ToolCall(call.name, call.arguments, f"call_{number}_{place}")
        for place, call in enumerate(action.calls)
    )
    return Action(action.text, action.thought, calls, action.answer, action.error)


def _key(request: Request) -> str:
    """A name of a request, equal for equal ones."""
    return hashlib.sha256(pickle.dumps(request)).hexdigest()
