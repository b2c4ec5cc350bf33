"""One episode of an agent: its requests are answered by the engine, and kept as contexts.

What an agent asks for is sampled under the recipe's settings, within the recipe's budgets; what it
cannot have is refused with the reason. `dialects/` has the formats, `agent_episode.py` runs agents.
"""

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from turnwise.capture import Capture, reasons
from turnwise.chat.endpoint import ChatEndpoint
from turnwise.config import RolloutConfig
from turnwise.engines.base import Engine
from turnwise.errors import InfrastructureError
from turnwise.tokens import Tokens
from turnwise.tools.tool import in_thread
from turnwise.types import Outcome, Turn, Verdict
from turnwise_gateway.bounds import check_request
from turnwise_gateway.contexts import Contexts, Exchange
from turnwise_gateway.endpoints import EndpointSpeaker
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import RefusedError, Reply, Request
from turnwise_gateway.sampling import EngineSessions, Sampler, ShortSessions
from turnwise_gateway.usage import Usage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


REPLY_PREFIX = re.compile("^(chatcmpl-|resp_|msg_)")
"""The words before a reply's id in the dialects."""
MODEL = "policy"
"""The name of the only model that there is, where an agent has no roles."""
FEWEST_REFUSALS = 16
"""Requests that may be refused in any episode; where rollout.max_turns is more, so many."""


@dataclass(frozen=True)
class EndpointRole:
    endpoint: ChatEndpoint
    name: str


Role = Engine | EndpointRole | None
"""The policy of a role: an engine whose weights stay as they are, a model behind an endpoint, or,
None, the one that is trained."""


@dataclass(eq=False)
class Session:
    """The requests of one episode, until it is closed."""

    name: str
    """The engine's session, open, which is the episode's own."""
    seed: int
    limits: RolloutConfig
    engine: Engine
    scaffolds: Scaffolds
    tokenizer: "PreTrainedTokenizerBase"
    roles: Mapping[str, Role] = field(default_factory=dict)
    """The roles of the agent by name; empty for one, the policy."""
    credit_by_role: bool = False
    """Whether each role may have a reward of its own."""
    leave_out_thoughts: bool = False
    """Whether thoughts before the last words of a user are left out; else they stay as sampled."""
    rewarded_by_agent: bool = False
    """Whether rewards are given through the address; else they are the verifier's."""
    spans: Any = None
    """The episode's spans of OpenTelemetry (`spans.py`), if any are asked for."""
    clock: Callable[[], float] = time.monotonic
    reward: Verdict | None = field(default=None, init=False)
    """The reward that was given through the gateway."""
    role_rewards: dict[str, float] = field(default_factory=dict, init=False)
    """Rewards of single roles that were given there."""
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the agent says that it is done."""
    closed: bool = field(default=False, init=False)
    limit: Outcome | None = field(default=None, init=False)
    """The budget at which a request was refused, unless a later reply was given."""
    failure: str = field(default="", init=False)
    """The failure of the engine, unless a later reply was given."""
    requests: int = field(default=0, init=False)
    bug: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.contexts = Contexts(self.leave_out_thoughts)
        self.usage = Usage()
        self._sessions = EngineSessions(self.engine, self.name)
        self._speakers = {name: self._speaker(name) for name in self.names}
        self._running: set[asyncio.Task[Reply]] = set()
        self._asked: dict[str, asyncio.Task[Reply]] = {}
        self._exchanges: dict[str, Sequence[Exchange]] = {}
        self._replies, self._called = 0, 0  # of all roles: replies, those under way too, and calls
        self._refused: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._retried, self._waiting, self._since = 0, 0, 0.0
        self.waits: list[tuple[float, float]] = []  # when the agent waited, by the clock

    @property
    def names(self) -> list[str]:
        """The names of models that there are: the roles, or the policy's."""
        return list(self.roles) or [MODEL]

    @property
    def waited(self) -> float:
        """Seconds so far in which the agent waited for a reply."""
        ended = sum(end - start for start, end in self.waits)
        return ended + (self.clock() - self._since if self._waiting else 0.0)

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
            # The answer goes on without the one that asked, who may come again for it.
            return await asyncio.shield(answer)
        except RefusedError as refused:
            self._count_refusal(refused)
            # A refusal is not kept: an engine that failed may answer the next try.
            self._asked.pop(key, None)
            raise
        except Exception as error:
            self.bug = error  # the episode raises it, whatever the agent makes of it
            raise
        except asyncio.CancelledError:
            if not answer.cancelled():
                raise  # the one that asked is gone; the answer is kept for when it comes again
            raise _ended() from None

    @contextmanager
    def counting_refusals(self) -> Iterator[None]:
        """Inside, a refused request counts. Raises RefusedError after too many to read more."""
        most = max(FEWEST_REFUSALS, self.limits.max_turns)
        if self._refused.total() > most:
            self.limit = Outcome.TRUNCATED_TURNS
            raise RefusedError(
                f"the episode's budget is spent: {most} requests were refused",
                403,
                "rollout.max_turns",
                "permission_error",
            )
        try:
            yield
        except RefusedError as refused:
            self._count_refusal(refused)
            raise

    def arrived(self, reply: Reply) -> None:
        for exchange in self._exchanges.get(reply.id, ()):
            exchange.delivered = True

    async def count(self, request: Request) -> int:
        """The tokens of a request's messages. Raises RefusedError for what cannot be rendered."""
        self._check_open()
        check_request(request, self.limits.max_tokens)
        tools, scaffold = await in_thread(partial(self.scaffolds.of, request))
        return (await Contexts().begin(tools, scaffold, request.messages, 2**31)).start  # unbounded

    def rewarded(self, reward: Verdict) -> None:
        """Keep the reward of the episode. Raises RefusedError where it is not the agent's."""
        self.check_rewarding()
        self.reward = reward

    def reward_reply(self, reply: str, reward: float) -> None:
        """Keep the reward of one turn, by the id of the reply, before which each dialect has a word
        of its own. Raises RefusedError for an id of none, and where rewards are not the agent's."""
        self.check_rewarding()
        exchanges = self._exchanges.get(REPLY_PREFIX.sub("", reply))
        if not exchanges:
            raise RefusedError(f"there is no reply {reply!r}", 404, "reply", "not_found_error")
        for exchange in exchanges:
            exchange.reward = reward

    def reward_role(self, role: str, reward: float) -> None:
        """Keep the reward of one role. Raises RefusedError for a role that is not trained, and
        where rewards are not the agent's."""
        self.check_rewarding()
        problem = self.problem_with_role(role)
        if problem:
            raise RefusedError(problem, field="role")
        self.role_rewards[role] = reward

    def problem_with_role(self, role: str) -> str:
        """The reason why a role gets no reward of its own; empty where it does."""
        trained = [name for name in self.roles if self.roles[name] is None]
        if role not in trained:
            known = ", ".join(map(repr, trained)) or "agent.roles names none"
            return f"there is no trained role {role!r}: {known}"
        if not self.credit_by_role:
            return 'rewards of single roles need agent.credit = "role"'
        return ""

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
        ledger = {name: self._ledger(name, lost) for name in self.names}
        dropped: Counter[str] = Counter()
        for counts in ledger.values():
            dropped.update(reasons(counts))
        capture = Capture(
            sum(self._calls.values()),
            sum(counts["sampled"] for counts in ledger.values()),
            dict(+dropped),
            dict(self._refused),
            self._retried,
            ledger if self.roles else {},
        )
        return tokens, turns, capture

    def _ledger(self, name: str, lost: Mapping[str, int]) -> dict[str, int]:
        """The account of a role: its calls, its tokens, and those that are not in the record."""
        speaker = self._speakers[name]
        counts = {"calls": self._calls[name]}
        if isinstance(speaker, EndpointSpeaker):
            return counts | {"sampled": speaker.written, "endpoint": speaker.written}
        sampled = speaker.contexts.sampled()[speaker.role]
        if self.roles.get(name) is not None:
            return counts | {"sampled": sampled, "frozen": sampled}
        return counts | {"sampled": sampled, "undelivered": lost.get(speaker.role, 0)}

    def _check_open(self) -> None:
        if self.closed or self.ended.is_set():
            raise _ended()

    def _count_refusal(self, refused: RefusedError) -> None:
        self._refused[refused.field or refused.kind] += 1

    def check_rewarding(self) -> None:
        """Raise RefusedError where rewards are not the agent's, or the episode has ended."""
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
        if self._replies + request.count > self.limits.max_turns:
            self.limit = Outcome.TRUNCATED_TURNS
            raise _over("rollout.max_turns", self.limits.max_turns)
        if self._called > self.limits.max_tool_calls:
            self.limit = Outcome.TRUNCATED_TOOL_CALLS
            raise _over("rollout.max_tool_calls", self.limits.max_tool_calls)

    async def _answer(self, request: Request) -> Reply:
        self._check_open()
        role = self._role(request)
        self._check_budget(request)
        # Before sampling, or requests at the same time would share what is left of a budget.
        self._replies += request.count
        spoken = None
        try:
            check_request(request, self.limits.max_tokens)
            with self.waiting():
                spoken = await self._speakers[role].speak(request)
        except RefusedError as refused:
            if refused.message.startswith("context_length_exceeded"):
                self.limit = Outcome.TRUNCATED_TOKENS
            raise
        except InfrastructureError as error:
            self.failure = str(error)
            raise RefusedError(self.failure, 503, kind="api_error") from None
        finally:
            if spoken is None:
                self._replies -= request.count
        self.failure, self.limit = "", None
        self._called += sum(len(one.calls) for one in spoken.choices)
        self._calls[role] += 1
        reply = Reply(
            f"{sum(self._calls.values()) - 1}",
            role,
            spoken.choices,
            spoken.prompt_tokens,
            int(time.time()),
        )
        self.usage.count(request, spoken.exchanges, reply)
        if self.roles.get(role) is None:
            self._exchanges[reply.id] = spoken.exchanges
        return reply

    def _role(self, request: Request) -> str:
        """The role that a request asks for. Raises RefusedError for one that there is not."""
        role = request.model or self.names[0]
        if role not in self._speakers:
            raise RefusedError(
                f"there is no model {role!r}: there is {', '.join(map(repr, self.names))}",
                404,
                "model",
                "not_found_error",
            )
        return role

    def _speaker(self, name: str) -> Sampler | EndpointSpeaker:
        role = self.roles.get(name)
        if isinstance(role, EndpointRole):
            return EndpointSpeaker(role.endpoint, role.name, self.limits)
        given = self.scaffolds, self.tokenizer, self.limits, self.seed
        if role is None:
            label = name if self.roles else ""
            return Sampler(label, self.engine, self._sessions, self.contexts, *given)
        sessions = ShortSessions(role, f"{self.name}/{name}")
        contexts = Contexts(self.leave_out_thoughts)
        return Sampler(name, role, sessions, contexts, *given)

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
        before, self._since = self._since, self.clock()
        self.waits += [(before, self._since)] if self._waiting else []
        self._waiting += change


def _ended() -> RefusedError:
    return RefusedError("the episode has ended", 403, kind="permission_error")


def _over(name: str, most: int) -> RefusedError:
    return RefusedError(
        f"the episode's budget is spent: {name} = {most}", 403, name, "permission_error"
    )


def _key(request: Request) -> str:
    images = [one.images for one in request.messages]  # which their messages do not show
    return hashlib.sha256(repr((request, images)).encode()).hexdigest()
