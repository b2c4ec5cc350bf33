"""Engines of an agent's frozen roles: the policy at an earlier time."""

from pathlib import Path

from turnwise.engines.base import Engine, EngineSetup
from turnwise.engines.registry import ENGINES, make_engine
from turnwise.errors import ConfigError
from turnwise.models.copies import base_of
from turnwise.models.load import load_model
from turnwise.parts.components import Components
from turnwise.storage import checkpoint
from turnwise_gateway.settings import AgentConfig, FrozenPolicy


def frozen_engines(agent: AgentConfig, components: Components) -> dict[str, Engine]:
    """An engine for each checkpoint of a frozen role. Without one, it has the weights after the
    cold start of the run that the components' are of, or the recipe's own. Raises ConfigError for
    an engine that servers sample for, DataError for a damaged checkpoint."""
    recipe = components.recipe
    policies = [role.policy for role in agent.roles.values()]
    named = dict.fromkeys(one.checkpoint for one in policies if isinstance(one, FrozenPolicy))
    if named and not ENGINES.get(recipe.engine.name).shares_weights:
        raise ConfigError(
            f"a frozen role is sampled in this process, and engine {recipe.engine.name} has "
            "servers: serve its weights by one of your own, and set policy to an endpoint"
        )
    made, longest = {}, recipe.rollout.max_tokens
    for name in named:
        folder = Path(name) if name else _cold_start(components.weights)
        if folder is not None:
            checkpoint.check(folder)
        model, _ = load_model(recipe.model, folder, recipe.seed, longest)
        model.requires_grad_(False)
        made[name] = make_engine(
            EngineSetup(recipe.token_engine, base_of(model), components.tokenizer, longest)
        )
    return made


def _cold_start(weights: Path | None) -> Path | None:
    """The checkpoint after the cold start of a run, one of whose checkpoints is given."""
    if weights is None:
        return None
    run = checkpoint.checkpoints_beside(weights)
    return checkpoint.latest(checkpoint.root_of(run, checkpoint.COLD_START))
