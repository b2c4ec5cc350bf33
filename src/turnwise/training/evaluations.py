"""An evaluation as a stage: `evaluation.episodes_per_task` episodes of each held-out task.

Not here: what is counted (`evaluation/evaluate.py`).
"""

from dataclasses import dataclass

from turnwise.environments.base import Environment
from turnwise.evaluation.evaluate import evaluate_policy
from turnwise.training.context import RunContext


@dataclass(frozen=True)
class Evaluation:
    """The stage that evaluates a policy. Example: Evaluation("trained", environment)."""

    name: str
    environment: Environment
    """The run's own, or a variant of it in which something is taken away."""

    async def run(self, context: RunContext, step: int) -> int:
        """Evaluate; an evaluation of this version of the policy is not repeated."""
        done = context.folder.evaluation(self.name)
        if not context.heldout or (done is not None and done.get("step") == step):
            return step
        recipe, config = context.recipe, context.recipe.evaluation
        limits = recipe.rollout.model_copy(update={"temperature": config.temperature})
        episodes = config.episodes_per_task
        context.display.phase(f"evaluation: {self.name}", episodes * len(context.heldout))
        await context.components.load(step)
        runner = context.components.runner(
            limits, self.environment, lambda _: context.display.advance(), step
        )
        label = f"evaluation/{self.name}"
        groups, summary = await evaluate_policy(
            runner, context.heldout, config.seed, label, episodes, config.k, config.best_of
        )
        context.folder.write_trajectories(f"evaluation-{self.name}", groups)
        spec = self.environment.spec
        environment = f"{spec.name} {spec.version}, data {spec.data_hash or 'unhashed'}"
        facts = {"step": step, "environment": environment}
        context.folder.write_evaluation(self.name, {**facts, **summary})
        return step
