"""A judge that gives an episode a score in a declared range."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.types import Trajectory
from turnwise_judges.asking import Asker
from turnwise_judges.base import EpisodeJudge, Judgement, MalformedReplyError
from turnwise_judges.prompt import Request, record_of

QUESTION = (
    "How well did the agent do the task that is under `task`? Count what it did and answered, not "
    "what it says of itself."
)


@dataclass(frozen=True)
class Score:
    """The form of an answer with a number in a range. Example: Score(0, 10)."""

    low: float
    high: float

    @property
    def example(self) -> Mapping[str, Any]:
        return {"score": (self.low + self.high) / 2}

    def read(self, values: Mapping[str, Any]) -> float:
        score = values["score"]
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise MalformedReplyError("the score is not a number")
        if not self.low <= score <= self.high:
            raise MalformedReplyError(f"the score is not between {self.low:g} and {self.high:g}")
        return float(score)


@dataclass(frozen=True)
class PointwiseJudge(EpisodeJudge):
    """Example: `await PointwiseJudge(asker, low=0, high=10).measure_one(trajectory)`."""

    asker: Asker
    low: float = 0.0
    high: float = 10.0
    question: str = QUESTION
    max_characters: int = 20_000
    """Length of a record as it is quoted."""

    async def judge(self, trajectory: Trajectory) -> Judgement[float]:
        return await self.asker.ask(self.request(trajectory))

    def request(self, trajectory: Trajectory) -> Request[float]:
        scale = f"Score it from {self.low:g}, the worst, to {self.high:g}, the best."
        record = record_of(trajectory, self.max_characters)
        return Request(record, f"{self.question} {scale}", Score(self.low, self.high))

    def metrics(self) -> dict[str, float]:
        return self.asker.counts.metrics()
