"""An evaluation as a stage: `evaluation.episodes_per_task` episodes of each held-out task.

Not here: what is counted (`evaluation/evaluate.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnwise.environments.base import Environment
from turnwise.evaluation.evaluate import evaluate_policy
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.types import Group


class Evaluated(NamedTuple):
    """An evaluation as it was played."""

    groups: Sequence[Group]
    summary: Mapping[str, Any]
    """The second value of `evaluate_policy`."""


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
        limits = recipe.rollout.unlearned(config.temperature)
        episodes = config.episodes_per_task
        context.display.phase(f"evaluation: {self.name}", episodes * len(context.heldout))
        await context.components.load(step)
        own = self.environment is context.components.environment
        variant = None if own else (self.name, self.environment)
        runner = context.components.runner(
            limits, variant, lambda _: context.display.advance(), step
        )
        groups, summary = await evaluate_policy(
            runner, context.heldout, config, f"evaluation/{self.name}"
        )
        found = Evaluated(groups, summary)
        keep_evaluation(context.folder, self.name, found, self.environment, step)
        return step


def keep_evaluation(
    folder: RunFolder, name: str, found: Evaluated, environment: Environment, step: int
) -> None:
    """Write an evaluation's trajectories, and its summary with what comparisons and new verdicts
    have to know: the environment, and the step of RL whose reward it has."""
    folder.write_trajectories(f"evaluation-{name}", found.groups)
    spec = environment.spec
    known = f"{spec.name} {spec.version}, data {spec.data_hash or 'unhashed'}"
    folder.write_evaluation(name, {"step": step, "environment": known, **found.summary})
