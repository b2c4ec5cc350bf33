"""The seams of judges: the model that answers, the form of an answer, and what comes of it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from turnwise.chat.endpoint import Reply
from turnwise.errors import InfrastructureError
from turnwise.interrupt import computes
from turnwise.types import Group, Trajectory

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Message = Mapping[str, str]
"""A chat message: {"role": "system" or "user", "content": text}."""


class JudgeModel(Protocol):
    @property
    def identity(self) -> str:
        """All that the answer depends on beside the messages: answers are kept under it."""
        ...

    async def complete(self, messages: Sequence[Message], seed: int | None = None) -> Reply:
        """The model's answer, under a seed that follows from the messages if none is given. Raises
        InfrastructureError where there is none."""
        ...


class MalformedReplyError(ValueError):
    """A reply is not the line that was asked for. The text is shown to the model: it is in fixed
    words, and quotes nothing."""


class AnswerForm(Protocol[T_co]):
    """The keys of an answer beside `nonce` and `reason`, with examples of their values."""

    @property
    def example(self) -> Mapping[str, Any]:
        """The keys and what may stand there."""
        ...

    def read(self, values: Mapping[str, Any]) -> T_co:
        """The answer's value; `values` has the example's keys. Raises MalformedReplyError."""
        ...


@dataclass(frozen=True)
class Judgement(Generic[T]):
    """The judgement of an episode, or of two. Example: Judgement(7.0, reason="It is right.")"""

    value: T | None
    """None where the judgement is missing: it is not 0, and not the worst."""
    reason: str = ""
    """The model's own words, for people."""
    problem: str = ""
    """Why it is missing."""

    def required(self) -> T:
        """The value. Raises InfrastructureError where it is missing."""
        if self.value is None:
            raise InfrastructureError(f"the judge: {self.problem}")
        return self.value


class EpisodeJudge(ABC):
    """A judge that scores one episode at a time."""

    @abstractmethod
    async def judge(self, trajectory: Trajectory) -> Judgement[float]:
        """The score of an episode."""

    @computes
    async def measure_one(self, trajectory: Trajectory) -> float:
        """The score. Raises InfrastructureError where the judgement is missing."""
        return (await self.judge(trajectory)).required()

    @computes
    async def measure(self, group: Group) -> list[float | None]:
        """The scores of the graded members; None where a judgement is missing."""
        return [one.value for one in await asyncio.gather(*map(self.judge, group.graded))]
