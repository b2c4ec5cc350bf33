"""The judge of a run, as turnwise asks for it: what its section makes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turnwise.config import AnyJudgeConfig
from turnwise.parts.judge import Policy
from turnwise.rewards.parts import RewardPart
from turnwise.rollout.runner import RolloutRunner
from turnwise.types import Group, Outcome, Trajectory
from turnwise_judges.alarm import UnreadableReplies
from turnwise_judges.making import Judge, make_judge, part_of
from turnwise_judges.refining import Refinement, make_refinement, refinement_metrics


@dataclass(frozen=True)
class JudgeOfRun:
    """A judge in a run. Example: make_judge_of_run(recipe.judge, seed, folder, policy)."""

    settings: AnyJudgeConfig
    judge: Judge
    refinement: Refinement | None
    """Its training; None where it is not trained."""

    @property
    def part(self) -> RewardPart:
        return part_of(self.settings, self.judge)

    async def regraded(self, groups: Sequence[Group]) -> list[Group]:
        return await regraded(groups, self.judge)

    async def refine(
        self, runner: RolloutRunner, groups: Sequence[Group], seed: int, step: int
    ) -> list[Group]:
        """None where it is not trained."""
        if self.refinement is None:
            return []
        return await self.refinement.play(runner, groups, seed, step)

    def refinement_metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        return refinement_metrics(groups)

    def timing(self) -> dict[str, float]:
        """Seconds and counts since this process began."""
        return {"seconds/judge": self.judge.asker.counts.seconds, **self.judge.metrics()}

    def alarm(self, timing: Iterable[Mapping[str, float]]) -> Callable[[int], str]:
        return UnreadableReplies(self.judge.asker.counts, timing)


def make_judge_of_run(
    settings: AnyJudgeConfig, seed: int, folder: Path | None, policy: Policy | None
) -> JudgeOfRun:
    """Without a policy a judge that asks it can only say what part it is."""
    if policy is None:
        settings = settings.model_copy(update={"cache": ""})  # nothing is asked, so nothing is read
    judge = make_judge(settings, folder, seed, policy)
    if settings.refinement is None or policy is None:
        return JudgeOfRun(settings, judge, None)
    refinement = make_refinement(judge, settings.refinement, policy.max_tokens)
    return JudgeOfRun(settings, judge, refinement)


async def regraded(groups: Sequence[Group], judge: Judge) -> list[Group]:
    """The groups with the judge's numbers as rewards; a member whose judgement is missing is
    ungraded. Success stays what the verifier found."""
    return list(await asyncio.gather(*(_regraded(group, judge) for group in groups)))


async def _regraded(group: Group, judge: Judge) -> Group:
    numbers = iter(await judge.measure(group))
    members = [
        _with_reward(member, next(numbers)) if member.reward is not None else member
        for member in group.trajectories
    ]
    return replace(group, trajectories=tuple(members))


def _with_reward(member: Trajectory, reward: float | None) -> Trajectory:
    if reward is None:
        problem = "the judge: its judgement is missing"
        return replace(member, outcome=Outcome.GRADER_ERROR, problem=problem, verdict=None)
    assert member.verdict is not None  # it is graded
    verdict = replace(member.verdict, reward=reward, turn_rewards=())
    return replace(member, verdict=verdict)
