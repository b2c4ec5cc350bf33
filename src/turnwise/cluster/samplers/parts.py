"""The parts of a recipe that a sampler has: a model and the embedded engine, and no environment.

Not here: what it does with them (`sampler.py`).
"""

from importlib.metadata import version

from turnwise.config import EmbeddedEngineConfig, Recipe
from turnwise.engines.base import Engine, EngineSetup
from turnwise.engines.registry import make_engine
from turnwise.models.copies import base_of
from turnwise.models.load import load_model


def engine_of(recipe: Recipe) -> Engine:
    """The engine of one sampler, with its share of the sequences. Its model is the recipe's as
    training begins with it: trained weights are sent. Raises UserError for what is not there on
    this machine."""
    model_config = recipe.model.model_copy(update={"gradient_checkpointing": False})
    if model_config.device.startswith("cuda"):
        model_config = model_config.model_copy(update={"device": "cuda"})  # the one of its place
    longest = recipe.rollout.max_tokens
    model, tokenizer = load_model(model_config, None, recipe.seed, longest)
    model.requires_grad_(False)
    return make_engine(EngineSetup(share_of(recipe), base_of(model), tokenizer, longest))


def share_of(recipe: Recipe) -> EmbeddedEngineConfig:
    """The settings of one sampler's engine: its part of what the recipe asks for in all."""
    engine, count = recipe.engine, recipe.cluster.samplers
    assert isinstance(engine, EmbeddedEngineConfig)  # no recipe has samplers otherwise
    shared = {
        name: -(-getattr(engine, name) // count) for name in ("max_sequences", "kv_cache_tokens")
    }
    return engine.model_copy(update=shared)


def facts_of(recipe: Recipe) -> str:
    """Whatever has to be the same in all processes of a run, as a text."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("turnwise", "torch", "transformers")
    )
    return f"{packages}, model {recipe.model.name}"
