"""The contexts of an agent's requests: which tokens a request goes on from, and the record of all.

An agent sends whole conversations. One that goes on from a reply of this episode has the tokens of
that reply as they were sampled, and only the messages after it are rendered. Where the place is the
end of a context, the context grows; else (another try, a sub-agent, a history that was edited or
summed up) a new context begins, with a copy of what it shares. So each sampled token stands once in
the record as MODEL, after the very tokens that it was sampled after.

Messages are compared as a whole, without the ids of calls. Thoughts stay in the record as sampled;
or those before the last words of a user are left out, as the chat templates of many families have
it, and a context begins anew where that changes what the policy reads.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

import numpy as np

from turnwise.engines.base import Completion
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import NO_VERSION, KeptTokens, Segment, Source, Tokens
from turnwise.tools.tool import in_thread
from turnwise.types import Action, Observation, Step, ToolCall, ToolResult, Turn
from turnwise_gateway.rendering import assistant_turn, beginning, continuation
from turnwise_gateway.requests import Key, Message, RefusedError, key_of, keys_of


@dataclass(eq=False)
class Exchange:
    """A reply of the policy, and the messages that it follows."""

    number: int
    """Its number in the episode, from 0, in the order of asking."""
    context: "Context"
    shown: tuple[Message, ...]
    """The messages since the reply before it in its context."""
    keys: tuple[Key, ...]
    """The parts of these messages by which they are known again."""
    before: Tokens
    """The context without them, to go back to if nothing is sampled."""
    start: int = 0
    written: Sequence[int] = ()
    action: Action | None = None
    """None while it is sampled."""
    message: Message | None = None
    key: Key = ()
    """The parts by which it is known again."""
    delivered: bool = False
    finished: int = -1
    """Its number in the order in which replies were finished."""
    reward: float | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.written)

    @property
    def thinks(self) -> bool:
        """Whether it has a thought that can be told from the rest."""
        return self.action is not None and self.action.error is None and bool(self.action.thought)


@dataclass(eq=False)
class Context:
    """A conversation that grows at its end. It may begin with exchanges of another one."""

    tools: tuple[str, str]
    """The role that it is of, and the name of the set of tools that it was begun with."""
    tokens: Tokens
    exchanges: list[Exchange] = field(default_factory=list)
    copied: int = 0
    """Tokens that are copies from another context."""
    thinks: bool = False
    """Whether it began with a thought, of a reply that was sampled in another one."""
    cause: str = ""
    """The reason why it is not another one that goes on."""

    @property
    def role(self) -> str:
        return self.tools[0]

    @property
    def own(self) -> list[Exchange]:
        """The exchanges that were sampled in it."""
        return [one for one in self.exchanges if one.context is self]


@dataclass(frozen=True)
class _Place:
    """A place to go on from: after the first `exchanges` of a context, whose messages are the first
    `messages` of a request; before the reply of the next one if `again`."""

    context: Context
    exchanges: int
    messages: int
    again: bool = False
    same_ids: bool = False

    @property
    def rank(self) -> tuple[int, bool, bool]:
        """The higher, the better: by what it shares, by the ids of its last calls, as an end."""
        at_end = self.exchanges == len(self.context.exchanges) and not self.again
        return self.messages, self.same_ids, at_end


class Contexts:
    def __init__(self, leave_out_thoughts: bool = False) -> None:
        """`leave_out_thoughts` as templates do, those before the last words of a user."""
        self._leave_out = leave_out_thoughts
        self.exchanges: list[Exchange] = []
        """All that are under way or finished, in the order of asking."""
        self._contexts: list[Context] = []
        self._numbers = 0
        self._finished = 0
        self.beginning = asyncio.Lock()

    async def begin(
        self, tools: str, scaffold: Scaffold, messages: Sequence[Message], most: int, role: str = ""
    ) -> Exchange:
        """Find the place of a request, and make ready to sample after it. Raises RefusedError for
        messages that cannot be rendered, and where a context of `most` tokens has no room for a
        reply; nothing is changed then. To be called with `beginning`."""
        if not messages or messages[-1].role == "assistant":
            raise RefusedError(
                "the last message is the assistant's: end with a user's or a tool's",
                field="messages",
            )
        number = self._numbers
        keys = keys_of(messages)
        begun_with = role, tools
        places = self._places(begun_with, keys, messages)
        kept = [place for place in places if not self._outdated(place, messages)]
        place = max(kept, key=lambda place: place.rank, default=None)
        context = self._context(begun_with, place, outdated=len(kept) < len(places))
        if place is not None and place.again:
            shown, tokens = place.context.exchanges[place.exchanges].shown, context.tokens
        else:
            shown = tuple(messages[0 if place is None else place.messages :])
            # In a thread: a long prompt takes seconds, in which the engine has others to serve.
            rendered = partial(self._rendered, scaffold, context, messages, shown, number, most)
            tokens = await in_thread(rendered)
        if len(tokens) >= most:
            raise RefusedError(
                f"context_length_exceeded: these messages are {len(tokens)} tokens and more, and a "
                f"context has at most {most}",
                field="messages",
            )
        # From here on nothing is refused, and so the record may change.
        fresh = tuple(keys[len(keys) - len(shown) :])
        exchange = Exchange(number, context, shown, fresh, context.tokens, len(tokens))
        self._numbers += 1
        for one in context.exchanges:  # the agent has sent them back
            one.delivered = True
        context.tokens = tokens
        context.thinks |= self._shows_thoughts(shown)
        if context not in self._contexts:
            self._contexts.append(context)
        context.exchanges.append(exchange)
        self.exchanges.append(exchange)
        return exchange

    def finish(
        self, exchange: Exchange, completion: Completion, action: Action, message: Message
    ) -> None:
        exchange.written, exchange.action = completion.tokens, action
        exchange.message, exchange.key = message, key_of(message)
        exchange.finished = self._finished
        self._finished += 1
        sampled = completion.tokens, completion.logprobs, completion.version
        exchange.context.tokens = exchange.context.tokens.with_sampled(
            *sampled, exchange.number, kept=completion.kept
        )

    def forget(self, exchange: Exchange) -> None:
        """Take an exchange back for which nothing was sampled. None was built upon it."""
        context = exchange.context
        context.exchanges.remove(exchange)
        context.tokens = exchange.before
        self.exchanges.remove(exchange)
        if not context.own:
            self._contexts.remove(context)

    def sampled(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for one in self.exchanges:
            counts[one.context.role] += len(one.written)
        return counts

    def record(self) -> tuple[Tokens, tuple[Turn, ...], Counter[str]]:
        """The tokens of all contexts, one after another, the one that was last written to at the
        end; their turns; and the number of each role's sampled tokens that are in none, because the
        agent never got them."""
        kept: list[tuple[Context, list[Exchange]]] = []
        for context in self._contexts:
            own = [one for one in context.own if one.action is not None]
            # At the end alone: what came after an earlier reply was sampled after it.
            while own and not own[-1].delivered:
                own.pop()
            if own:
                kept.append((context, own))
        kept.sort(key=lambda pair: pair[1][-1].finished)
        exchanges = [one for _, own in kept for one in own]
        lost = self.sampled()
        for one in exchanges:
            lost[one.context.role] -= len(one.written)
        numbers = np.zeros(self._numbers + 1, np.int32)
        for turn, exchange in enumerate(exchanges):
            numbers[exchange.number] = turn
        tokens = _joined([(context, own[-1].end) for context, own in kept], numbers)
        turns = tuple(_turn(one, context) for context, own in kept for one in own)
        return tokens, turns, lost

    def _places(
        self, tools: tuple[str, str], keys: Sequence[Key], messages: Sequence[Message]
    ) -> list[_Place]:
        """The places to go on from, one in each context that has the first messages."""
        contexts = [one for one in self._contexts if one.tools == tools]
        return [place for one in contexts if (place := _shared(one, keys, messages))]

    def _outdated(self, place: _Place, messages: Sequence[Message]) -> bool:
        """Whether there are thoughts before the place which the messages after it leave out."""
        before = place.context.exchanges[: place.exchanges]
        thinks = place.context.thinks or any(one.thinks for one in before)
        return self._leave_out and thinks and _user_speaks(messages[place.messages :])

    def _shows_thoughts(self, messages: Sequence[Message]) -> bool:
        """Whether replies with thoughts are among messages, and no user speaks after them."""
        current = takewhile(lambda one: one.role != "user", reversed(messages))
        said = [self._known(one) for one in current if one.role == "assistant"]
        return any(one.thinks for one in said if one is not None)

    def _context(self, tools: tuple[str, str], place: _Place | None, outdated: bool) -> Context:
        """The context that a request goes on in: a new one unless the place is the end of one."""
        if place is None:
            other = "another beginning" if self._contexts else "the first"
            cause = "thoughts left out" if outdated else other
            return Context(tools, Tokens.empty(), cause=cause)
        context, kept = place.context, place.context.exchanges[: place.exchanges]
        if not place.again and len(kept) == len(context.exchanges):
            return context
        end = context.exchanges[place.exchanges].start if place.again else kept[-1].end
        cause = "another try" if place.again else "another way on"
        return Context(tools, _copied(context.tokens, end), kept, end, context.thinks, cause)

    def _rendered(
        self,
        scaffold: Scaffold,
        context: Context,
        messages: Sequence[Message],
        shown: Sequence[Message],
        number: int,
        most: int,
    ) -> Tokens:
        """The context's tokens and those of the messages after it, as far as there is room."""
        tokens, turn = context.tokens, number
        written: Sequence[int] = ()
        calls: Sequence[ToolCall] = ()
        if context.exchanges:
            last = context.exchanges[-1]
            echoed = messages[len(messages) - len(shown) - 1]
            written, calls, turn = last.written, echoed.calls, last.number
        begun, rest = bool(context.exchanges), list(shown)
        while rest:
            group = list(takewhile(lambda one: one.role != "assistant", rest))
            if not group:
                raise RefusedError(
                    "two messages of the assistant follow one another", field="messages"
                )
            if begun:
                segments = continuation(scaffold, written, calls, group)
            else:
                segments = beginning(scaffold, group)
            tokens, begun, rest = tokens.with_segments(segments, turn), True, rest[len(group) :]
            if len(tokens) >= most:
                break
            if rest:
                echo = rest.pop(0)
                source, written, turn = self._repeated(scaffold, echo, number, _user_speaks(rest))
                calls = echo.calls
                tokens = tokens.with_segments([Segment(written, source)], turn)
        return tokens

    def _repeated(
        self, scaffold: Scaffold, message: Message, number: int, past: bool
    ) -> tuple[Source, Sequence[int], int]:
        """The tokens of an assistant's message after others than it was sampled after: its own ones
        where the policy wrote it, else the scaffold's; and the turn that they belong to. `past` is
        one that a user has spoken after."""
        exchange = self._known(message)
        if exchange is None:
            return Source.ENVIRONMENT, assistant_turn(scaffold, message), number
        exchange.delivered = True
        if past and self._leave_out and exchange.thinks:
            return Source.TEMPLATE, assistant_turn(scaffold, message, past=True), exchange.number
        return Source.INHERITED, exchange.written, exchange.number

    def _known(self, message: Message) -> Exchange | None:
        """The last reply of the policy that a message repeats."""
        key = key_of(message)
        return next((one for one in reversed(self.exchanges) if one.key == key), None)


def _user_speaks(messages: Sequence[Message]) -> bool:
    return any(one.role == "user" for one in messages)


def _shared(context: Context, keys: Sequence[Key], messages: Sequence[Message]) -> _Place | None:
    """The last place up to which a context has the messages of a request, or None."""
    cursor, place = 0, None
    for count, exchange in enumerate(context.exchanges):
        after = cursor + len(exchange.shown)
        if tuple(keys[cursor:after]) != exchange.keys:
            break
        if after == len(messages):
            return _Place(context, count, after, again=True)
        reply = exchange.message
        # [:-1]: the place of a call, which only results have.
        if reply is None or exchange.key != keys[after][:-1]:
            break
        same_ids = [one.id for one in reply.calls] == [one.id for one in messages[after].calls]
        cursor = after + 1
        place = _Place(context, count + 1, cursor, same_ids=same_ids)
    return place


def _copied(tokens: Tokens, end: int) -> Tokens:
    """A new context's beginning: the first tokens of another, with nothing to be trained."""
    source = tokens.source[:end].copy()
    source[source == Source.MODEL] = Source.INHERITED
    return Tokens(
        tokens.ids[:end],
        source,
        tokens.turn[:end],
        np.full(end, NO_VERSION, np.int32),
        np.full(end, np.nan, np.float32),
        images=tuple(image for image in tokens.images if image.end <= end),
    )


def _joined(contexts: Sequence[tuple[Context, int]], numbers: np.ndarray) -> Tokens:
    """The first tokens of contexts, up to each end; `numbers`, int32, are the exchanges' turns."""
    if not contexts:
        return Tokens.empty()
    parts = [(one.tokens, end) for one, end in contexts]
    lengths = [end for _, end in parts]
    starts = np.cumsum([0, *lengths[:-1]])
    arrays = {
        name: np.concatenate([getattr(tokens, name)[:end] for tokens, end in parts])
        for name in ("ids", "source", "turn", "version", "logprob")
    }
    arrays["turn"] = numbers[arrays["turn"]]
    places = [
        (start, start + min(context.copied, end))
        for start, (context, end) in zip(starts.tolist(), contexts, strict=True)
    ]
    images = tuple(
        replace(image, start=image.start + start)
        for start, (tokens, end) in zip(starts.tolist(), parts, strict=True)
        for image in tokens.images
        if image.end <= end
    )
    kept = KeptTokens.chosen([(tokens.kept, np.arange(end)) for tokens, end in parts])
    return Tokens(**arrays, contexts=np.array(places, np.int64), images=images, kept=kept)


def _turn(exchange: Exchange, context: Context) -> Turn:
    """An exchange as a turn, with what the agent showed next in the same context."""
    assert exchange.action is not None  # those that are kept are finished
    after = context.exchanges[context.exchanges.index(exchange) + 1 :]
    reward = exchange.reward
    if not after:
        step = None if reward is None else Step(reward=reward)
        return Turn(exchange.action, step, context.role)
    shown = list(takewhile(lambda one: one.role != "assistant", after[0].shown))
    told = [one for one in shown if one.role == "tool"]
    by_id = {one.call: one.text for one in told}
    results = tuple(
        ToolResult(call, by_id[call.id]) for call in exchange.action.calls if call.id in by_id
    )
    source = Source.TOOL if told else Source.USER
    text = "\n".join(one.text for one in shown)
    step = Step(Observation(text, source), results, reward=reward)
    return Turn(exchange.action, step, context.role)
