"""Saved trajectories before a judge: how far it agrees with the verdicts, and pairs by it."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.policies import newest_checkpoint
from turnwise.monitor.display import Display
from turnwise.parts.components import build_components
from turnwise.seeds import derive
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import groups_of
from turnwise.types import Group, Trajectory, TrajectoryId
from turnwise_judges.agreement import agreement, ranking
from turnwise_judges.making import Judge, make_judge
from turnwise_judges.models import Policy
from turnwise_judges.pairwise import Better, PairwiseJudge, schedule
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.rubric import RubricJudge
from turnwise_judges.section import regraded
from turnwise_judges.settings import AnyJudgeConfig, PolicyJudgeModel

Rows = Sequence[Mapping[str, Any]]
"""Rows of a run's trajectories (`storage.trajectory_rows.SCHEMA`)."""


@dataclass(frozen=True)
class Judged:
    """A judgement beside the verifier's."""

    group: str
    episodes: tuple[int, ...]
    judged: float | str | None
    """A score, or which of two is better; None where it is missing."""
    gold: bool | str
    """Success, or which of two has the higher reward."""
    reason: str
    """The judge's own words, or why there are none."""


async def judge_rows(
    folder: RunFolder, rows: Rows, config: AnyJudgeConfig, display: Display
) -> tuple[dict[str, Any], list[Judged]]:
    """Judge saved trajectories: a summary of how far judge and verifier agree and of what it took,
    and the judgements. A score above the middle of the range counts as success; comparisons are of
    episodes of a group whose rewards differ. Raises DataError where nothing can be compared."""
    groups = groups_of(rows)
    async with _judge_for(folder, config, display) as judge:
        if isinstance(judge, PairwiseJudge):
            judged = await _compared(judge, groups, display)
        else:
            judged = await _scored(judge, groups, display)
        display.close()
        return _summary(judge, judged), judged


async def judged_rows(
    folder: RunFolder, rows: Rows, config: AnyJudgeConfig, display: Display
) -> list[dict[str, Any]]:
    """The rows with the judge's numbers as rewards; None where the judgement is missing."""
    display.phase("judge", 1)
    async with _judge_for(folder, config, display) as judge:
        groups = await regraded(groups_of(rows), judge)
    display.close()
    rewards = {one.id: one.reward for group in groups for one in group.trajectories}
    names = [TrajectoryId(row["group"], row["episode"]) for row in rows]
    return [dict(row) | {"reward": rewards[name]} for row, name in zip(rows, names, strict=True)]


@asynccontextmanager
async def _judge_for(
    folder: RunFolder, config: AnyJudgeConfig, display: Display
) -> AsyncIterator[Judge]:
    """The judge of a configuration; where it is the policy, the run's newest one."""
    if config.refinement is not None:
        raise ConfigError(
            "judge.refinement trains a judge in a run, and here nothing is trained: leave it out"
        )
    recipe = folder.recipe()
    seed = derive(recipe.seed, "judge")
    if not isinstance(config.model, PolicyJudgeModel):
        yield make_judge(config, folder.path, seed)
        return
    weights = newest_checkpoint(folder.path, display).folder
    parts = build_components(recipe, weights)
    name = f"{weights.parent.name}/{weights.name}"
    try:
        judge = make_judge(config, folder.path, seed, Policy.of(parts, lambda: name))
        await parts.check()
        yield judge
    finally:
        await parts.stop()


async def _scored(
    judge: PointwiseJudge | RubricJudge, groups: Sequence[Group], display: Display
) -> list[Judged]:
    members = [member for group in groups for member in group.graded]
    if not members:
        raise DataError("none of these episodes has a grade: choose others with --step")
    display.phase("judge", len(members))

    async def one(member: Trajectory) -> Judged:
        found = await judge.judge(member)
        display.advance()
        assert member.verdict is not None  # it is graded
        said = found.problem or found.reason
        return Judged(member.group, (member.episode,), found.value, member.verdict.success, said)

    return list(await asyncio.gather(*map(one, members)))


async def _compared(
    judge: PairwiseJudge, groups: Sequence[Group], display: Display
) -> list[Judged]:
    pairs = [
        (members[one], members[other])
        for members in (group.graded for group in groups)
        for one, other in schedule(len(members), judge.opponents)
        if members[one].reward != members[other].reward
    ]
    if not pairs:
        raise DataError(
            "no two of these episodes are of one group and have different rewards: choose others "
            "with --step"
        )
    display.phase("judge", len(pairs))

    async def one(pair: tuple[Trajectory, Trajectory]) -> Judged:
        first, second = pair
        found = await judge.compare(first, second)
        display.advance()
        assert first.reward is not None  # both are graded
        assert second.reward is not None
        gold = Better.FIRST if first.reward > second.reward else Better.SECOND
        said = found.problem or found.reason
        return Judged(first.group, (first.episode, second.episode), found.value, gold, said)

    return list(await asyncio.gather(*map(one, pairs)))


def _summary(judge: Judge, judged: Sequence[Judged]) -> dict[str, Any]:
    labels: list[Any] = [one.judged for one in judged]
    gold = [one.gold for one in judged]
    own: dict[str, float] = {}
    if not isinstance(judge, PairwiseJudge):
        scores = [math.nan if score is None else score for score in labels]
        own["ranking"] = ranking(scores, [bool(good) for good in gold])
        middle = (judge.low + judge.high) / 2
        labels = [None if score is None else score > middle for score in labels]
    seconds = {"judge/seconds": judge.asker.counts.seconds}
    return asdict(agreement(labels, gold)) | own | judge.metrics() | seconds
