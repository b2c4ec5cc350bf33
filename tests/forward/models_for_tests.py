"""Tiny random models of several families, a byte-level tokenizer on disk, and reference numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

END = "<|end|>"
PAIRS = ("</", "se", "ar", "ch", "search", "r>x", "ab")
"""Merged tokens beside the 256 bytes, so that stop strings span tokens and end inside them."""
WINDOW = 8
VOCABULARY = 300
ASCII = 94
"""The first tokens of the tokenizer are printable characters."""
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"tie_word_embeddings": True}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": WINDOW}),
    "gemma2": (
        Gemma2Config,
        Gemma2ForCausalLM,
        {
            "sliding_window": WINDOW,
            "final_logit_softcapping": 4.0,
            "attn_logit_softcapping": 5.0,
            "tie_word_embeddings": False,
        },
    ),
    "gemma3": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
            "tie_word_embeddings": False,
        },
    ),
}


SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,
}


def random_model(kind: tuple[Any, Any, dict[str, Any]], seed: int, **changes: Any) -> Any:
    """A float32 model of a kind: classes of configuration and model, and options. Two layers,
    grouped-query attention and peaked logits, unless options or changes have it otherwise."""
    config_class, model_class, options = kind
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model_class(config_class(**(SIZES | options | changes))).eval()


def tiny_model(family: str, seed: int = 0, positions: int = 512) -> PreTrainedModel:
    """A random model in whose texts no token is special."""
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    positions_too = {**special, "max_position_embeddings": positions}
    model: PreTrainedModel = random_model(FAMILIES[family], seed, **positions_too)
    return model


def tiny_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer: 256 bytes, the merges of PAIRS, one special token; through disk."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    for pair in PAIRS:
        vocabulary[pair] = len(vocabulary)
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[("<", "/"), ("s", "e")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def reference_logprobs(
    model: PreTrainedModel, history: Sequence[int], sampled: int, temperature: float = 1.0
) -> list[float]:
    """Log-probabilities of the last `sampled` tokens, from one forward pass without a cache."""
    return own_logprobs(model, history, sampled, temperature).tolist()


def own_logprobs(
    model: PreTrainedModel, history: Sequence[int], sampled: int, temperature: float = 1.0
) -> torch.Tensor:
    """The same as a tensor, float64[sampled]."""
    ids = torch.tensor([list(history)])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0].double() / temperature
    logprobs = torch.log_softmax(logits, -1)[-sampled - 1 : -1]
    return logprobs.gather(1, ids[0, -sampled:, None])[:, 0]
