"""The cold start: supervised learning on demonstrations, before RL."""

from turnwise.storage import checkpoint
from turnwise.training.context import RunContext
from turnwise.training.offline import learn_offline
from turnwise.training.offline_learners import supervised_learner


class ColdStart:
    """The stage of supervised learning before RL. Its last checkpoint is the policy that RL begins
    with, and the reference of a KL term; it is kept."""

    async def run(self, context: RunContext, step: int) -> int:
        recipe, saved = context.recipe, context.saved_in(checkpoint.COLD_START)
        if saved is not None and saved.step == recipe.sft.steps:
            return step
        demonstrations, every = await context.demonstrations.tokens(), recipe.sft.checkpoint_every
        with supervised_learner(context, demonstrations, recipe.sft, saved) as learner:
            context.display.phase("cold start", recipe.sft.steps)
            await learn_offline(context, learner, checkpoint.COLD_START, "cold_start.jsonl", every)
        await context.components.freeze()
        checkpoint.prune(checkpoint.root_of(context.folder.checkpoints, checkpoint.COLD_START), 1)
        return step
