"""The judge of a run: what its section makes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnwise.parts.components import Components
from turnwise.parts.reward_source import RewardSource
from turnwise.rewards.parts import RewardPart
from turnwise.rollout.runner import RolloutRunner
from turnwise.seeds import derive
from turnwise.types import Group, Outcome, Trajectory
from turnwise_judges.asking import UnreadableReplies
from turnwise_judges.making import Judge, make_judge, part_of
from turnwise_judges.models import Policy
from turnwise_judges.refining import Refinement, make_refinement, refinement_metrics
from turnwise_judges.settings import AnyJudgeConfig


@dataclass(frozen=True)
class JudgeOfRun(RewardSource):
    """A judge in a run. Example: `with_judge(section, components).reward_sources["judge"]`."""

    settings: AnyJudgeConfig
    judge: Judge
    refinement: Refinement | None
    """Its training; None where it is not trained."""

    @property
    def parts(self) -> Mapping[str, RewardPart]:
        """The part `judge` of the reward."""
        return {"judge": part_of(self.settings, self.judge)}

    async def refine(
        self, runner: RolloutRunner, groups: Sequence[Group], seed: int, step: int
    ) -> list[Group]:
        """None of them where it is not trained."""
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


def with_judge(settings: AnyJudgeConfig, components: Components) -> Components:
    """Give a run the judge of its section. Raises ConfigError as `make_judge` and
    `make_refinement` do."""
    recipe, engine = components.recipe, components.engine
    policy = Policy.of(components, lambda: f"policy {engine.version}")
    judge = make_judge(settings, components.folder, derive(recipe.seed, "judge"), policy)
    refinement = None
    if settings.refinement is not None:
        refinement = make_refinement(judge, settings.refinement, recipe.rollout.max_tokens)
    made = JudgeOfRun(settings, judge, refinement)
    return replace(components, reward_sources={**components.reward_sources, "judge": made})


async def regraded(groups: Sequence[Group], judge: Judge) -> list[Group]:
    """The groups with the judge's numbers as rewards (RLAIF, arXiv 2309.00267); a member whose
    judgement is missing is ungraded. Success stays what the verifier found."""
    return list(await asyncio.gather(*(_regraded(group, judge) for group in groups)))


async def _regraded(group: Group, judge: Judge) -> Group:
    numbers = iter(await judge.measure(group))  # of the graded members, in order
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
    # The number is for the whole episode, its turns included.
    verdict = replace(member.verdict, reward=reward, turn_rewards=())
    return replace(member, verdict=verdict)
