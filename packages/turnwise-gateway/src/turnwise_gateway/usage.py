"""Counts of what an agent's requests were."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise_gateway.contexts import Exchange
from turnwise_gateway.requests import Reply, Request


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
        self.dialects[request.dialect] += 1
        self.tools.update(tool.name for tool in request.tools)
        self.ignored.update(request.ignored)
        malformed = [one.action is not None and one.action.error is not None for one in exchanges]
        for place, choice in enumerate(reply.choices):
            wrong = bool(malformed) and malformed[place]
            self.endings["malformed" if wrong else choice.ending] += 1
        for exchange in exchanges:
            if exchange.context.own[0] is exchange:
                self.contexts[exchange.context.cause] += 1
