"""Engines that a recipe can name. The scripted engine is not one of them: it needs a script."""

from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config import EngineConfig, VllmConfig
from turnwise.engines.base import Engine
from turnwise.errors import unknown_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ENGINES = {
    "embedded": "in this process, any transformers causal LM, KV cache kept over turns",
    "vllm": "servers of vLLM, started and owned or already running, with sticky routing",
}


def make_engine(
    config: EngineConfig,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    max_tokens: int,
    vllm: VllmConfig | None = None,
    folder: Path | None = None,
) -> Engine:
    """The engine a recipe names, sampling from `model` itself (through its adapters, if it has
    some), in a thread of its own unless it goes in lockstep. `max_tokens` bounds a trajectory; an
    engine with files of its own keeps them in `folder`, or in a temporary one."""
    if config.name not in ENGINES:
        raise unknown_name("engine", config.name, ENGINES)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if config.name == "vllm":
        from turnwise.engines.vllm.make import make_vllm

        return make_vllm(config, vllm or VllmConfig(), base, tokenizer, max_tokens, folder)
    from turnwise.engines.embedded import EmbeddedEngine
    from turnwise.engines.threaded import ThreadedEngine

    engine = EmbeddedEngine(
        base,
        tokenizer,
        slots=config.slots,
        max_tokens=max_tokens,
        deterministic=config.deterministic,
        cache_tokens=config.cache_tokens or None,
        autocast=config.autocast,
    )
    return engine if config.deterministic else ThreadedEngine(engine)
