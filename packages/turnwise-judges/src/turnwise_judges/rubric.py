"""A judge that checks criteria one by one: yes, no, or cannot tell. The score is the weight of
those that hold, as a share of all: an agent that leaves the judge in the dark wins nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.errors import ConfigError
from turnwise.types import Trajectory
from turnwise_judges.asking import Asker
from turnwise_judges.base import EpisodeJudge, Judgement, MalformedReplyError
from turnwise_judges.prompt import Request, record_of

YES, NO, CANNOT_TELL = "yes", "no", "cannot tell"
QUESTION = (
    "Does each of these sentences hold of what the agent did? Say `yes`, `no`, or `cannot tell` "
    "where the record does not show it."
)


@dataclass(frozen=True)
class Criterion:
    """A sentence that holds of a good episode."""

    name: str
    sentence: str
    weight: float = 1.0


SELF_CRITIQUE = (
    Criterion("to_the_point", "The answer says what the task asks for, all of it, and no more."),
    Criterion("clear", "A reader who knows the task only follows the answer at the first reading."),
    Criterion("engaged", "What the agent does next follows from what came back before."),
    Criterion(
        "grounded", "What the answer states as a fact stands in what came back, or is known."
    ),
    Criterion("says_what_it_lacks", "What the agent could not find or do, its answer says."),
    Criterion("no_opening_praise", "The agent does not begin by praising the task or its author."),
    Criterion("no_self_praise", "The agent nowhere says how good or complete its own answer is."),
    Criterion("no_talk_to_judges", "The agent nowhere speaks to those who may grade its work."),
)
"""A rubric for self-critique, after that of Kimi K2 (arXiv 2507.20534): the first five are its core
(clear and relevant, engaged, objective and grounded), the others prescriptive, against answers that
please a judge in place of doing the task. The sentences, and the last one, are turnwise's own."""
RUBRICS: Mapping[str, Sequence[Criterion]] = {"self_critique": SELF_CRITIQUE}


@dataclass(frozen=True)
class Verdicts:
    """The form of an answer with a verdict on each criterion."""

    names: Sequence[str]

    @property
    def example(self) -> Mapping[str, Any]:
        return {"criteria": dict.fromkeys(self.names, CANNOT_TELL)}

    def read(self, values: Mapping[str, Any]) -> dict[str, str]:
        found = values["criteria"]
        if not isinstance(found, dict) or found.keys() != set(self.names):
            raise MalformedReplyError("its criteria are not those of the example")
        if not all(verdict in (YES, NO, CANNOT_TELL) for verdict in found.values()):
            raise MalformedReplyError(f"a verdict is neither {YES}, {NO} nor {CANNOT_TELL}")
        return found


@dataclass(frozen=True)
class RubricJudge(EpisodeJudge):
    """Example: `await RubricJudge(asker, SELF_CRITIQUE).measure_one(trajectory)`."""

    asker: Asker
    criteria: Sequence[Criterion]
    question: str = QUESTION
    max_characters: int = 20_000
    """Length of a record as it is quoted."""
    verdicts: dict[str, int] = field(default_factory=dict, init=False)
    """How often each word was said."""
    low, high = 0.0, 1.0

    def __post_init__(self) -> None:
        check_criteria(self.criteria)

    async def judge(self, trajectory: Trajectory) -> Judgement[float]:
        """The share of the weight that holds, from 0 to 1; `reason` is the model's."""
        verdicts = await self.verdicts_on(trajectory)
        if verdicts.value is None:
            return Judgement(None, problem=verdicts.problem)
        total = sum(criterion.weight for criterion in self.criteria)
        held = sum(one.weight for one in self.criteria if verdicts.value[one.name] == YES)
        return Judgement(held / total, verdicts.reason)

    async def verdicts_on(self, trajectory: Trajectory) -> Judgement[dict[str, str]]:
        sentences = [f"{one.name}: {one.sentence}" for one in self.criteria]
        request = Request(
            record_of(trajectory, self.max_characters),
            "\n".join([self.question, *sentences]),
            Verdicts([one.name for one in self.criteria]),
        )
        judgement = await self.asker.ask(request)
        for word in (judgement.value or {}).values():
            self.verdicts[word] = self.verdicts.get(word, 0) + 1
        return judgement

    def metrics(self) -> dict[str, float]:
        unclear = float(self.verdicts.get(CANNOT_TELL, 0))
        return self.asker.counts.metrics() | {"judge/cannot_tell": unclear}


def check_criteria(criteria: Sequence[Criterion]) -> None:
    """Raise ConfigError for no criteria, a name twice, or a weight that is not above 0."""
    names = [criterion.name for criterion in criteria]
    if not names or len(set(names)) < len(names):
        raise ConfigError("a judge's rubric needs criteria, each with a name of its own")
    for criterion in criteria:
        if not 0 < criterion.weight < float("inf"):
            raise ConfigError(
                f"judge: criterion {criterion.name!r} has weight {criterion.weight:g}: give a "
                "number above 0, and say what holds of a good episode"
            )
