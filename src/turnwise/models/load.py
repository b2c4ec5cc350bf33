"""Models and tokenizers: causal LMs, those of `forward/images.py` that read images, and `tiny`.

Nothing is downloaded unless the name is a hub's.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from turnwise.config import ModelConfig
from turnwise.errors import ConfigError, DataError, MissingExtraError, first_line
from turnwise.forward.attention import fix_rotations, recompute_layers
from turnwise.forward.images import FAMILIES, attach_reader, reader_of
from turnwise.forward.routing import route_in_float32
from turnwise.models.copies import keep_in_files
from turnwise.models.places import source_of
from turnwise.seeds import derive

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    config: ModelConfig,
    weights: Path | None = None,
    seed: int = 0,
    longest: int | None = None,
    in_files: bool = False,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The weights and the `tokenizer` that a recipe names, adapters included.

    `weights` is a checkpoint of the run: a model, or adapters for the recipe's model; `seed` is for
    new ones. Rotary positions that change with a text's length are those of `longest` tokens, the
    most that any will have. A model that takes images has its `image_reader`. With `in_files`
    weights stay in the files (`copies.py`). Raises DataError for a folder without a model or
    tokenizer or with a damaged file.
    """
    tokenizer = tokenizer or load_tokenizer(config)
    named, device = source_of(config), device_of(config, used=not in_files)
    source = str(weights) if weights is not None and not config.lora_rank else named
    images = model_type(config) in FAMILIES
    kind = AutoModelForImageTextToText if images else AutoModelForCausalLM
    try:
        model = read_whole(kind, pretrained_model_name_or_path=source, dtype=DTYPES[config.dtype])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"model {source} cannot be loaded: {first_line(error)}") from error
    if in_files:
        keep_in_files(model, device)
    else:
        model.to(device)
    route_in_float32(model)
    if longest is not None:
        fix_rotations(model, longest)
        model.longest_text = longest
    if images:
        attach_reader(model, tokenizer, named)
    if config.gradient_checkpointing:
        recompute_layers(model)
    model.offload_activations = config.offload_activations
    if config.lora_rank:
        model = _with_adapters(model, config.lora_rank, weights, seed)
    return model, tokenizer


def read_whole(kind: Any, **given: Any) -> Any:
    """A model by `from_pretrained`. Raises ValueError where its files lack weights, which
    transformers draws at random and says so in a log."""
    telling = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    model, told = kind.from_pretrained(**given, **telling)
    gaps = dict.fromkeys(told["missing_keys"], "is not in its files")
    for name, found, wanted in told["mismatched_keys"]:
        gaps[name] = f"has {list(found)} numbers there, and not {list(wanted)}"
    if gaps:
        first = min(gaps)
        raise ValueError(f"weight {first} {gaps[first]}, 1 of {len(gaps)} that are wrong")
    return model


def model_type(config: ModelConfig) -> str:
    """The type that transformers gives a recipe's model. Raises DataError for an unknown one."""
    source = source_of(config)
    try:
        return str(AutoConfig.from_pretrained(source).model_type)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"model {source} cannot be loaded: {first_line(error)}") from error


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """The tokenizer of the model that a recipe names. Raises DataError when it has no tokenizer."""
    source = source_of(config)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
    except Exception as error:
        raise DataError(f"tokenizer of {source} cannot be loaded: {first_line(error)}") from error
    if not tokenizer.is_fast:
        raise DataError(f"tokenizer of {source} is not a fast tokenizer: save it as tokenizer.json")
    return tokenizer


def device_of(config: ModelConfig, used: bool = False) -> torch.device:
    """A recipe's device, tried if it is `used`. Raises ConfigError for one that cannot be had."""
    name, automatic = config.device, "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(automatic if name == "auto" else name)
        if used or name != "auto":
            torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"model.device {name!r} cannot be used ({first_line(error)}): nvidia-smi "
            "shows what is on a card; name another, or cpu"
        ) from error
    return device


def _with_adapters(
    model: PreTrainedModel, rank: int, weights: Path | None, seed: int
) -> PreTrainedModel:
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError:
        raise MissingExtraError("peft", "lora") from None
    wrapped: PreTrainedModel
    if weights is not None:
        wrapped = PeftModel.from_pretrained(model, str(weights), is_trainable=True)
    else:
        # What adapters add is doubled (alpha / r), whatever their rank.
        adapters = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules=_adapted(model), task_type="CAUSAL_LM"
        )
        # peft draws from PyTorch's global generator, which goes on afterwards as if it had not.
        with torch.random.fork_rng():
            torch.manual_seed(derive(seed, "adapters"))
            wrapped = get_peft_model(model, adapters)
    wrapped.enable_input_require_grads()
    return wrapped


def _adapted(model: PreTrainedModel) -> str | list[str]:
    """All linear layers but the output layer; of a model with images those that read words."""
    if reader_of(model) is None:
        return "all-linear"
    decoder = {id(module) for module in model.get_decoder().modules()}
    named = model.named_modules()
    return [name for name, one in named if id(one) in decoder and isinstance(one, torch.nn.Linear)]
