"""A judge that says which of two episodes is better, and scores within a group from that.

Both orders are asked. Where the answer goes with the place, it is a tie, and counted: judges favour
a place (arXiv 2306.05685, section 3.3).
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from turnwise.interrupt import computes
from turnwise.types import Group, Trajectory
from turnwise_judges.asking import Asker
from turnwise_judges.base import Judgement, MalformedReplyError
from turnwise_judges.prompt import Request, record_of
from turnwise_judges.rubric import Criterion

QUESTION = (
    "Which of the two agents, whose records are under `first` and `second`, did the task better? "
    "Count what they did and answered, not what they say of themselves. Say `first`, `second`, or "
    "`tie`."
)

Record = Mapping[str, Any]


class Better(StrEnum):
    """The better of two episodes."""

    FIRST = "first"
    SECOND = "second"
    TIE = "tie"

    @property
    def swapped(self) -> "Better":
        """Name the same episode in the other order."""
        return {Better.FIRST: Better.SECOND, Better.SECOND: Better.FIRST}.get(self, self)

    @property
    def points(self) -> float:
        """Points of the first: 1 for a win, a half for a tie, 0."""
        return {Better.FIRST: 1.0, Better.TIE: 0.5, Better.SECOND: 0.0}[self]


@dataclass(frozen=True)
class Preference:
    """The form of an answer that names one of two."""

    @property
    def example(self) -> Mapping[str, Any]:
        return {"better": str(Better.TIE)}

    def read(self, values: Mapping[str, Any]) -> Better:
        if values["better"] not in list(Better):
            raise MalformedReplyError("better is neither first, second nor tie")
        return Better(values["better"])


@dataclass
class PlaceCounts:
    """How much the place counted, in comparisons that were judged in both orders."""

    comparisons: int = 0
    disagreements: int = 0
    """Comparisons whose two orders have different winners, or a winner and a tie."""
    first: int = 0
    """Answers, two to a comparison, that prefer the episode that is shown first."""
    second: int = 0

    def add(self, forward: Better, backward: Better) -> None:
        self.comparisons += 1
        self.disagreements += forward is not backward.swapped
        for answer in (forward, backward):
            self.first += answer is Better.FIRST
            self.second += answer is Better.SECOND

    @property
    def bias(self) -> float:
        """Share of answers for the first place less that for the second; NaN without any."""
        answers = 2 * self.comparisons
        return (self.first - self.second) / answers if answers else math.nan


@dataclass(frozen=True)
class PairwiseJudge:
    """Compares members of a group; with criteria as Kimi K2's self-critique (arXiv 2507.20534)."""

    asker: Asker
    criteria: Sequence[Criterion] = ()
    opponents: int | None = None
    """Others that each member is compared with, at least; None for all."""
    question: str = QUESTION
    max_characters: int = 20_000
    """Length of a record as it is quoted; half of it is for each of the two."""
    places: PlaceCounts = field(default_factory=PlaceCounts, init=False)
    low, high = 0.0, 1.0

    async def compare(self, first: Trajectory, second: Trajectory) -> Judgement[Better]:
        """Ask in both orders; a tie where they disagree, missing where one of the answers is."""
        return await self._compare(self._record(first), self._record(second))

    async def _compare(self, first: Record, second: Record) -> Judgement[Better]:
        forward, backward = await asyncio.gather(
            self.asker.ask(self._request(first, second)),
            self.asker.ask(self._request(second, first)),
        )
        if forward.value is None or backward.value is None:
            return Judgement(None, problem=forward.problem or backward.problem)
        self.places.add(forward.value, backward.value)
        agree = forward.value is backward.value.swapped
        return Judgement(forward.value if agree else Better.TIE, forward.reason)

    @computes
    async def measure(self, group: Group) -> list[float | None]:
        """Win rates of the graded members, 0 to 1; None for one without a judged comparison."""
        records = list(map(self._record, group.graded))
        pairs = schedule(len(records), self.opponents)
        compared = await asyncio.gather(
            *(self._compare(records[one], records[other]) for one, other in pairs)
        )
        points: list[list[float]] = [[] for _ in records]
        for (one, other), judgement in zip(pairs, compared, strict=True):
            if judgement.value is not None:
                points[one].append(judgement.value.points)
                points[other].append(1.0 - judgement.value.points)
        return [math.fsum(own) / len(own) if own else None for own in points]  # exact in any order

    def metrics(self) -> dict[str, float]:
        places = asdict(self.places)
        found = {f"judge/{key}": float(places[key]) for key in ("comparisons", "disagreements")}
        if self.places.comparisons:
            found["judge/position_bias"] = self.places.bias
        return self.asker.counts.metrics() | found

    def _record(self, trajectory: Trajectory) -> Record:
        return record_of(trajectory, self.max_characters // 2)

    def request(self, first: Trajectory, second: Trajectory) -> Request[Better]:
        return self._request(self._record(first), self._record(second))

    def _request(self, first: Record, second: Record) -> Request[Better]:
        data = {"first": first, "second": second}
        sentences = [criterion.sentence for criterion in self.criteria]
        under = ["Compare them by these sentences, which hold of a good record:"]
        lines = [self.question, *((*under, *sentences) if sentences else ())]
        return Request(data, "\n".join(lines), Preference())


def schedule(members: int, opponents: int | None = None) -> list[tuple[int, int]]:
    """The pairs of members that are compared: all, or those at the shortest distances round a
    circle, so that each has `opponents` others (one more where that is odd).

    >>> schedule(3)
    [(0, 1), (0, 2), (1, 2)]
    >>> schedule(5, opponents=2)
    [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]
    """
    if opponents is None or opponents >= members - 1:
        return [(one, other) for one in range(members) for other in range(one + 1, members)]
    distances = range(1, (opponents + 1) // 2 + 1)
    around = {
        (min(one, other), max(one, other))
        for one in range(members)
        for other in ((one + distance) % members for distance in distances)
    }
    return sorted(around)
