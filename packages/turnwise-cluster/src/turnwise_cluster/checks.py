"""Checks of what a learner on several processes cannot do: one line for each."""

import torch
from transformers import PreTrainedModel

from turnwise.config import Recipe, VllmEngineConfig
from turnwise.errors import ConfigError
from turnwise.forward.hidden import why_not_packed
from turnwise.forward.images import reader_of
from turnwise.forward.routing import experts_of


def check_cluster(recipe: Recipe) -> None:
    """Raise ConfigError for what only one process can do; loads nothing."""
    count = recipe.cluster.learners
    for sentence, given in done_alone(recipe).items():
        if given and count > 1:
            raise ConfigError(
                f"cluster.learners is {count}, but {sentence}: set cluster.learners=1, or leave "
                "the other out"
            )


def done_alone(recipe: Recipe) -> dict[str, bool]:
    """Say what only one process can do, and whether the recipe asks for it."""
    return {
        "train.steps, sft.steps and preferences.steps are 0, which leaves nothing to do together": (
            not (recipe.train.steps or recipe.sft.steps or recipe.preferences.steps)
        ),
        "adapters that servers get as merged weights, which one process would have to hold "
        "(engine.transport=adapters sends them alone)": (
            isinstance(recipe.engine, VllmEngineConfig)
            and bool(recipe.model.lora_rank)
            and recipe.engine.transport != "adapters"
        ),
    }


def check_model(recipe: Recipe, model: PreTrainedModel) -> None:
    """Raise ConfigError for a model that several processes cannot train, or with too few GPUs."""
    count = recipe.cluster.learners
    if count == 1:
        return
    _check_slices(recipe, model)
    _check_experts(recipe, model)
    device, gpus = model.device, torch.cuda.device_count()
    if device.type == "cuda" and device.index:
        raise ConfigError(
            f"cluster.learners is {count}, one for each GPU, and model.device is {device}: leave "
            "it out"
        )
    if device.type == "cuda" and recipe.cluster.address == "local" and gpus < count:
        raise ConfigError(
            f"cluster.learners is {count}, one for each GPU, and this machine has {gpus}: lower "
            "it, or name a cluster of several machines (cluster.address)"
        )


def _check_slices(recipe: Recipe, model: PreTrainedModel) -> None:
    """Raise ConfigError for a model whose rows ranks cannot compute together."""
    slices = recipe.cluster.sequence_ranks
    if slices == 1:
        return
    heads = int(model.config.get_text_config().num_attention_heads)
    reason = why_not_packed(model, recipe.learning.autocast)
    if reader_of(model) is not None:
        reason = "it reads images, which take the place of whole rows' tokens"
    if heads % slices:
        reason = f"its {heads} heads of attention do not divide by that"
    if reason:
        raise ConfigError(
            f"cluster.sequence_ranks is {slices}, and rows of model {recipe.model.name} cannot be "
            f"computed in slices: {reason}. Set cluster.sequence_ranks=1"
        )


def _check_experts(recipe: Recipe, model: PreTrainedModel) -> None:
    """Raise ConfigError where experts are to stay where they are, and cannot."""
    if not recipe.cluster.expert_parallel:
        return
    counts = [count for part in model.modules() for _, count in experts_of(part)]
    reasons = {
        f"model {recipe.model.name} has no experts": not counts,
        f"its {max(counts, default=0)} experts do not divide by cluster.learners": any(
            count % recipe.cluster.learners for count in counts
        ),
        "weights in bfloat16 have not been tried with it (model.dtype=float32, with "
        "learning.compute_dtype=bfloat16, is)": recipe.model.dtype != "float32",
    }
    for reason, given in reasons.items():
        if given:
            raise ConfigError(
                f"cluster.expert_parallel is true, but {reason}: set cluster.expert_parallel=false"
            )
