"""Engines by name: built-in ones, and a user's own; each is imported when it is asked for."""

from turnwise.engines.base import BuiltEngine, Engine, EngineSetup
from turnwise.registry import Registry, check_options, has_all

METHODS = ("open", "close", "generate", "load_weights", "sleep", "stop")
FACTS = ("build", "takes_images", "shares_weights", "returns_kept")

ENGINES: Registry[type[BuiltEngine]] = Registry(
    "engine",
    has_all(*METHODS, *FACTS),
    f"give a class with {', '.join((*METHODS, *FACTS))} (turnwise/engines/base.py)",
)
ENGINES.register(
    "embedded",
    "turnwise.engines.embedded:EmbeddedEngine",
    "in this process, any transformers causal LM, KV cache kept over turns",
)
WITHOUT_TOKENS = {
    "openai": "a model behind an endpoint of chat completions, for `turnwise evaluate` alone"
}
"""Engines that say words, and are none of these here (`turnwise_gateway/evaluating.py`)."""


def make_engine(setup: EngineSetup) -> Engine:
    """Build the engine a recipe names. Raises ConfigError for an unknown name or option."""
    config = setup.config
    build = ENGINES.get(config.name).build
    check_options(f"engine.options of {config.name!r}", build, (setup,), config.build_options())
    return build(setup, **config.build_options())
