"""The account of an agent's calls: what was sampled for it, and what of that is trained.

Plain data, no I/O. Not here: the tokens themselves (`tokens.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Capture:
    """Counts of one episode that an agent of the user's own has played through the gateway.

    >>> Capture(calls=2, sampled=40, dropped={"undelivered": 10}).trained
    30
    """

    calls: int = 0
    """Requests that were answered."""
    sampled: int = 0
    """Tokens that were sampled for them."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Sampled tokens that are not in the record, by reason: `undelivered`, the agent had hung up or
    was gone when they were there."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Requests that were refused, by the field or limit that was the reason."""
    retried: int = 0
    """Requests that were given the reply to an earlier one, which had not arrived."""

    @property
    def trained(self) -> int:
        """Sampled tokens that are in the record, each once."""
        return self.sampled - sum(self.dropped.values())

    @property
    def coverage(self) -> float:
        """Share of the sampled tokens that are in the record; 1 where there are none."""
        return self.trained / self.sampled if self.sampled else 1.0


def total(captures: Iterable[Capture]) -> Capture:
    """The sum of several."""
    calls = sampled = retried = 0
    dropped: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for one in captures:
        calls, sampled, retried = calls + one.calls, sampled + one.sampled, retried + one.retried
        dropped.update(one.dropped)
        refused.update(one.refused)
    return Capture(calls, sampled, dict(dropped), dict(refused), retried)
