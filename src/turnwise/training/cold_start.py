"""The cold start: supervised learning on scripted demonstrations, before RL.

Not here: how demonstrations are played (`synthesis/demonstrations.py`), and the imitation that RL
is compared with (`imitation.py`).
"""

from turnwise.learning.sft import SupervisedLearner
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import StageName
from turnwise.storage.tensors import read
from turnwise.training.context import RunContext
from turnwise.training.offline import learn_offline


class ColdStart:
    """The stage of supervised learning before RL. Its last checkpoint is the policy that RL begins
    with, and the reference of a KL term; it is kept."""

    async def run(self, context: RunContext, step: int) -> int:
        recipe, saved = context.recipe, context.saved_in(StageName.COLD_START)
        if saved is not None and saved.step == recipe.sft.steps:
            return step
        learner = SupervisedLearner(
            context.components.model,
            await context.demonstrations.tokens(),
            recipe.sft,
            recipe.learning,
            recipe.seed,
        )
        if saved is not None:
            learner.load_state(read(saved.learner))
        context.display.phase("cold start", recipe.sft.steps)
        every = recipe.sft.checkpoint_every
        await learn_offline(context, learner, StageName.COLD_START, "cold_start.jsonl", every)
        context.save(StageName.COLD_START, learner.steps_done, learner.state())
        await context.components.freeze()
        checkpoint.prune(checkpoint.root_of(context.folder.checkpoints, StageName.COLD_START), 1)
        return step
