"""Engines that a recipe can name. The scripted engine is not one of them: it needs a script."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.config import EngineConfig
from turnwise.engines.base import Engine
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.engines.threaded import ThreadedEngine
from turnwise.errors import unknown_name

ENGINES = {"embedded": "in this process, any transformers causal LM, KV cache kept over turns"}


def make_engine(
    config: EngineConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_tokens: int,
) -> Engine:
    """The engine a recipe names, sampling from `model` itself (through its adapters, if it has
    some), in a thread of its own unless it goes in lockstep. `max_tokens` bounds a trajectory."""
    if config.name not in ENGINES:
        raise unknown_name("engine", config.name, ENGINES)
    engine = EmbeddedEngine(
        model.get_base_model() if hasattr(model, "get_base_model") else model,
        tokenizer,
        slots=config.slots,
        max_tokens=max_tokens,
        deterministic=config.deterministic,
    )
    return engine if config.deterministic else ThreadedEngine(engine)
