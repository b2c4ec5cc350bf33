"""Imitation, which RL is compared with: demonstrations, for as many updates as the run made."""

import shutil

from turnwise.models.copies import put_weights
from turnwise.models.load import load_model
from turnwise.storage import checkpoint
from turnwise.training.context import RunContext
from turnwise.training.evaluations import Evaluation
from turnwise.training.offline import learn_offline
from turnwise.training.offline_learners import supervised_learner
from turnwise.training.prepare import set_aside


class Imitation:
    """The stage of imitation, for comparison with RL. It comes last: the model ends with the
    imitator's weights, and no run goes on from it to another stage, so it has no place in
    `checkpoint.newest`."""

    async def run(self, context: RunContext, step: int) -> int:
        """Train the weights that the run began with, and evaluate them as `sft`."""
        recipe, components = context.recipe, context.components
        if not context.heldout or context.folder.evaluation("sft") is not None:
            return step
        await components.engine.sleep()  # the learner may need its memory
        root = checkpoint.root_of(context.folder.checkpoints, checkpoint.IMITATION)
        saved, damaged = checkpoint.newest_of_stage(root)
        set_aside(damaged, context.display)
        folder = saved.folder if saved else None
        begun, _ = load_model(recipe.model, folder, recipe.seed, in_files=recipe.policy_in_files)
        put_weights(components.model, begun)
        learning, train = recipe.learning, recipe.train
        updates = recipe.sft.steps + train.steps * learning.updates_per_step * learning.epochs
        config = recipe.sft.model_copy(update={"steps": updates + recipe.policy_updates})
        demonstrations = await context.demonstrations.tokens()
        with supervised_learner(context, demonstrations, config, saved) as learner:
            context.display.phase("imitation", config.steps)
            every = config.checkpoint_every
            await learn_offline(context, learner, checkpoint.IMITATION, "imitation.jsonl", every)
        await Evaluation("sft", components.environment).run(context, step)
        # Its evaluation says that the stage is done: nothing goes on from these checkpoints.
        shutil.rmtree(root, ignore_errors=True)
        return step
