"""The evaluation of the model that an earlier cold start was made of, for comparison.

Not here: the evaluation of the weights that a run begins with (`evaluations.py`).
"""

from dataclasses import dataclass

from torch import Size
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.errors import ConfigError
from turnwise.models.in_files import put_weights
from turnwise.models.load import load_model
from turnwise.training.context import RunContext
from turnwise.training.evaluations import Evaluation


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
        model, _ = _load(context, context.recipe.model.name)
        put_weights(components.model, model)
        return step


def _load(context: RunContext, name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    recipe = context.recipe
    config = recipe.model.model_copy(update={"name": name})
    return load_model(config, None, recipe.seed, in_files=recipe.policy_in_files)


def _shapes(model: PreTrainedModel) -> dict[str, Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}
