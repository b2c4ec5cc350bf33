"""The account of an agent's calls: what was sampled for it, and what of that is trained.

Plain data, no I/O.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

UNTRAINED = ("frozen", "endpoint")
"""Reasons for which a role's tokens are not trained, whatever becomes of them: its policy."""


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
    was gone when they were there; `frozen` and `endpoint`, their role is not trained."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Requests that were refused, by the field or limit that was the reason."""
    retried: int = 0
    """Requests that were given the reply to an earlier one, which had not arrived."""

    roles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts of each role, where the agent has several: `calls`, `sampled`, and the tokens that
    are not in the record by reason. Tokens of an endpoint are as it counts them."""

    @property
    def trained(self) -> int:
        """Sampled tokens that are in the record, each once."""
        return self.sampled - sum(self.dropped.values())

    @property
    def coverage(self) -> float:
        """Share of trained roles' sampled tokens that are in the record; 1 where there are none."""
        return _coverage(self.sampled, self.dropped)

    def coverage_of(self, role: str) -> float:
        """Coverage of one role; 1 for one that is not trained."""
        return _coverage(self.roles[role]["sampled"], reasons(self.roles[role]))


def reasons(counts: Mapping[str, int]) -> dict[str, int]:
    """A role's tokens that are not in the record, by reason."""
    return {name: count for name, count in counts.items() if name not in ("calls", "sampled")}


def _coverage(sampled: int, dropped: Mapping[str, int]) -> float:
    wanted = sampled - sum(dropped.get(reason, 0) for reason in UNTRAINED)
    return (sampled - sum(dropped.values())) / wanted if wanted else 1.0


def total(captures: Iterable[Capture]) -> Capture:
    """The sum of several."""
    calls = sampled = retried = 0
    dropped: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    roles: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in captures:
        calls, sampled, retried = calls + one.calls, sampled + one.sampled, retried + one.retried
        dropped.update(one.dropped)
        refused.update(one.refused)
        for name, counts in one.roles.items():
            roles[name].update(counts)
    by_role = {name: dict(counts) for name, counts in roles.items()}
    return Capture(calls, sampled, dict(dropped), dict(refused), retried, by_role)
