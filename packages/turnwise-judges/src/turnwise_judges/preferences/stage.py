"""Learning from preferences when RL is done: pairs of trajectories that the policy samples then, or
those of a file."""

from functools import partial
from pathlib import Path

from turnwise.rollout.order import tasks_of_step
from turnwise.seeds import derive
from turnwise.training.context import RunContext
from turnwise.training.offline import learn_offline, save_offline
from turnwise.training.offline_learners import offline_learner
from turnwise.types import Group
from turnwise_judges.preferences.learner import (
    best_and_worst,
    preferences,
    preferences_of,
    saved_pairs,
)
from turnwise_judges.reward_model.data import read_pairs
from turnwise_judges.section import JudgeOfRun, regraded
from turnwise_judges.settings import PreferencesConfig

STAGE = "preferences"


class Preferences:
    """The stage of learning from pairs of trajectories, after RL."""

    async def run(self, context: RunContext, step: int) -> int:
        """It makes no step where all rewards of each group are equal."""
        recipe, config = context.recipe, preferences_of(context.recipe)
        saved = context.saved_in(STAGE)
        if saved is not None:
            pairs = saved_pairs(saved.learner)
        elif config.file:
            pairs = read_pairs(Path(config.file), context.components.scaffold)
        else:
            pairs = best_and_worst(await _groups_to_compare(context, config, step))
        if not pairs:
            context.display.say(
                f"warning: no preferences: the rewards of all {config.pairs} groups are all equal"
            )
            return step
        await context.components.engine.sleep()  # its memory is the learner's now
        every = recipe.train.checkpoint_every
        with offline_learner(context, partial(preferences, pairs), saved) as learner:
            if saved is None:
                save_offline(context, learner, STAGE)  # a resumed run has the same pairs
            context.display.phase("preferences", config.steps)
            await learn_offline(context, learner, STAGE, "preferences.jsonl", every)
        return step + learner.steps_done


async def _groups_to_compare(
    context: RunContext, config: PreferencesConfig, step: int
) -> list[Group]:
    recipe, wanted = context.recipe, config.pairs
    context.display.phase("samples to compare", wanted * recipe.train.group_size)
    await context.components.load(step)
    tasks = tasks_of_step(context.tasks, 0, wanted, derive(recipe.seed, "preferences"))
    advance = context.display.advance
    runner = context.components.runner(recipe.rollout, progress=lambda _: advance(), step=step)
    groups = []
    for start in range(0, wanted, recipe.train.tasks_per_step):
        groups += await runner.collect(
            tasks[start : start + recipe.train.tasks_per_step],
            recipe.train.group_size,
            recipe.seed,
            f"preferences/{start}",
        )
    groups = await runner.judge(groups)
    if config.by == "judge":
        judge = context.components.reward_sources["judge"]
        assert isinstance(judge, JudgeOfRun)  # whose section this package has too
        groups = await regraded(groups, judge.judge)
        runner.check_ungraded([member for group in groups for member in group.trajectories])
    context.folder.write_trajectories("preferences", groups)
    return groups
