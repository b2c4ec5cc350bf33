"""Models and tokenizers: any causal LM through transformers, and the embedded `tiny`.

Not here: what the weights are used for. Nothing is downloaded unless the name is a hub's.
"""

import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from turnwise.config import ModelConfig
from turnwise.errors import ConfigError, DataError, MissingExtraError
from turnwise.models.tiny import TINY, tiny_folder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(config: ModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The weights and the tokenizer that a recipe names, adapters included where it asks for them.

    Raises DataError for a folder without a model or tokenizer or with a damaged file.
    """
    tokenizer = load_tokenizer(config)
    source = _source(config)
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=DTYPES[config.dtype])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"model {source} cannot be loaded: {_first_line(error)}") from error
    model.to(_device(config.device))
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable()
    if config.lora_rank:
        model = _with_adapters(model, config.lora_rank)
    return model, tokenizer


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """The tokenizer of the model that a recipe names. Raises DataError when there is none."""
    source = _source(config)
    _check_folder(source)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"tokenizer of {source} cannot be loaded: {_first_line(error)}") from error
    if not tokenizer.is_fast:
        raise DataError(f"tokenizer of {source} is not a fast tokenizer: save it as tokenizer.json")
    return tokenizer


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"model.device {name!r}: {_first_line(error)}") from error
    return device


def _source(config: ModelConfig) -> str:
    return str(tiny_folder()) if config.name == TINY else config.name


def _check_folder(source: str) -> None:
    folder = Path(source)
    if not folder.is_dir():
        if folder.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
            raise DataError(f"model {source}: there is no such folder")
        return
    if not (folder / "config.json").is_file():
        raise DataError(f"model {source}: the folder has no config.json")
    names = set(os.listdir(folder))
    if not names & {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json"}:
        raise DataError(f"model {source}: the folder has no tokenizer (tokenizer.json)")


def _with_adapters(model: PreTrainedModel, rank: int) -> PreTrainedModel:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise MissingExtraError("peft", "lora") from None
    adapters = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    wrapped: PreTrainedModel = get_peft_model(model, adapters)
    wrapped.enable_input_require_grads()
    return wrapped


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
