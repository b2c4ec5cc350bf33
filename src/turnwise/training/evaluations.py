"""Evaluations as stages: `evaluation.episodes_per_task` episodes of each held-out task."""

from dataclasses import dataclass
from pathlib import Path

from torch import Size
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError
from turnwise.evaluation.evaluate import evaluate_policy
from turnwise.evaluation.kept import Evaluated, keep_evaluation
from turnwise.models.copies import put_weights
from turnwise.models.load import load_model
from turnwise.storage import checkpoint
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


@dataclass(frozen=True)
class Untrained:
    """The stage that evaluates another model as `base`, and then gives the run its own again."""

    name: str

    async def run(self, context: RunContext, step: int) -> int:
        """Evaluate. Raises ConfigError for a model of another kind than the run's."""
        components = context.components
        if not context.heldout or context.folder.evaluation("base") is not None:
            return step
        model, tokenizer = _load(context, self.name)
        known = (components.tokenizer.get_vocab(), _shapes(components.model))
        if (tokenizer.get_vocab(), _shapes(model)) != known:
            raise ConfigError(
                f"evaluation.base is {self.name}, which differs from the run's model, "
                f"{context.recipe.model.name}, in its tokenizer or its sizes: give one of its kind"
            )
        put_weights(components.model, model)
        await Evaluation("base", components.environment).run(context, step)
        # A wing's stage may have trained the run's own, and saved them.
        before, _ = checkpoint.newest(context.folder.checkpoints)
        weights = None if before is None else before.folder
        model, _ = _load(context, context.recipe.model.name, weights)
        put_weights(components.model, model)
        return step


def _load(
    context: RunContext, name: str, weights: Path | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    recipe = context.recipe
    config = recipe.model.model_copy(update={"name": name})
    return load_model(config, weights, recipe.seed, in_files=recipe.policy_in_files)


def _shapes(model: PreTrainedModel) -> dict[str, Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}
