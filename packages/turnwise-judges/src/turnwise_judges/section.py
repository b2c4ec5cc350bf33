"""The judge of a run, as turnwise asks for it: what its section makes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.config import AnyJudgeConfig
from turnwise.parts.judge import Policy
from turnwise.rewards.parts import RewardPart
from turnwise.rollout.runner import RolloutRunner
from turnwise.types import Group
from turnwise_judges.alarm import UnreadableReplies
from turnwise_judges.making import Judge, make_judge, part_of
from turnwise_judges.refining import Refinement, make_refinement, refinement_metrics
from turnwise_judges.regrading import regraded


@dataclass(frozen=True)
class JudgeOfRun:
    """A judge in a run. Example: make_judge_of_run(recipe.judge, seed, folder, policy)."""

    settings: AnyJudgeConfig
    judge: Judge
    refinement: Refinement | None
    """Its training; None where it is not trained."""

    @property
    def part(self) -> RewardPart:
        """The judge as a part of the reward."""
        return part_of(self.settings, self.judge)

    async def regraded(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with the judge's numbers as rewards."""
        return await regraded(groups, self.judge)

    async def refine(
        self, runner: RolloutRunner, groups: Sequence[Group], seed: int, step: int
    ) -> list[Group]:
        """Groups of replies that the judge is trained by; none where it is not trained."""
        if self.refinement is None:
            return []
        return await self.refinement.play(runner, groups, seed, step)

    def refinement_metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """The metrics of such groups."""
        return refinement_metrics(groups)

    def timing(self) -> dict[str, float]:
        """Seconds and counts of what judging took since this process began."""
        return {"seconds/judge": self.judge.asker.counts.seconds, **self.judge.metrics()}

    def alarm(self, timing: Iterable[Mapping[str, float]]) -> Callable[[int], str]:
        """Warns of steps whose replies are unreadable."""
        return UnreadableReplies(self.judge.asker.counts, timing)


def make_judge_of_run(
    settings: AnyJudgeConfig, seed: int, folder: Path | None, policy: Policy | None
) -> JudgeOfRun:
    """The judge of a recipe's section; without a policy one that asks it can only say what part it
    is. Raises ConfigError as `make_judge` and `make_refinement` do."""
    if policy is None:
        settings = settings.model_copy(update={"cache": ""})  # nothing is asked, so nothing is read
    judge = make_judge(settings, folder, seed, policy)
    if settings.refinement is None or policy is None:
        return JudgeOfRun(settings, judge, None)
    refinement = make_refinement(judge, settings.refinement, policy.max_tokens)
    return JudgeOfRun(settings, judge, refinement)
