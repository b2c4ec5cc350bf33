"""Tiny random models of every causal-LM class that transformers has, made from default
configurations.

Sizes are set by the names that configurations give them, so that a class nobody has thought of is
made like the others; what does not follow these names is in EXCEPTIONS. Not here: what is asked of
the models (`architectures.py`).
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCABULARY = 160
WIDTH, HEADS, HEAD = 32, 4, 8
LAYERS = 2
WINDOW = 24
POSITIONS = 512

SPREAD = 0.3
"""Standard deviation of all weights, with 1 as the mean of those of norms: what a model says of the
next token then depends on what it has seen."""
GATE = 6.0
"""Gates (decays, steps of time, sinks; no layer's weight or bias) go from -GATE to GATE..."""
SMALL_GATES = {"diffllama": 0.5}
"""...or to that, where an exponential of sums of their products would be beyond float32."""

ENDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
SIZES: dict[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim_model", "embedding_size", "emb_dim"), WIDTH
    ),
    **dict.fromkeys(("decoder_hidden_size", "decoder_embed_dim", "dim", "lru_width"), WIDTH),
    **dict.fromkeys(
        (
            "intermediate_size",
            "ffn_dim",
            "ffn_hidden_size",
            "decoder_ffn_dim",
            "encoder_ffn_dim",
            "n_inner",
            "dim_ff",
            "dff",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "block_ff_dim",
            "intermediate_size_mlp",
            "dense_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "feed_forward_size",
            "prefix_dense_intermediate_size",
            "expert_ffn_hidden_size",
            "block_auto_adjust_ff_dim_size",
        ),
        2 * WIDTH,
    ),
    **dict.fromkeys(
        (
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "decoder_layers",
            "encoder_layers",
            "num_decoder_layers",
            "num_encoder_layers",
        ),
        LAYERS,
    ),
    **dict.fromkeys(
        (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "decoder_attention_heads",
            "encoder_attention_heads",
            "num_decoder_attention_heads",
            "num_encoder_attention_heads",
            "attention_num_heads",
            "swa_num_attention_heads",
        ),
        HEADS,
    ),
    **dict.fromkeys(
        ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "swa_num_key_value_heads"), 2
    ),
    **dict.fromkeys(
        ("head_dim", "swa_head_dim", "global_head_dim", "v_head_dim", "attention_head_dim"), HEAD
    ),
    **dict.fromkeys(("qk_nope_head_dim", "dim_head", "d_kv", "kv_channels"), HEAD),
    "qk_rope_head_dim": HEAD,
    "qk_head_dim": 2 * HEAD,
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(("vocab_size", "n_tokens", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"), POSITIONS
    ),
    **dict.fromkeys(
        ("sliding_window", "window_size", "attention_window_size", "local_attention"), WINDOW
    ),
    "attention_chunk_size": WINDOW,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_shared_experts", "n_group", "topk_group", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 1),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "mamba_n_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_head_dim"), HEAD),
    **dict.fromkeys(("mamba_num_heads", "mamba_n_groups", "n_groups"), 4),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size", "mamba_dt_rank"), 8),
    **dict.fromkeys(("time_step_rank", "conv_kernel", "mamba_d_conv"), 4),
    **dict.fromkeys(("index_topk", "index_head_dim"), 8),
    "index_n_heads": 32,
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank", "altup_active_idx"), 8),
    "altup_active_idx": 0,
    **dict.fromkeys(("chunk_size", "mamba_chunk_size", "block_size", "index_block_size"), 16),
    **dict.fromkeys(("local_attn_chunk_length", "lsh_attn_chunk_length"), 16),
    **dict.fromkeys(("max_seq_len", "model_max_length", "n_ctx", "context_length"), POSITIONS),
    **dict.fromkeys(("sliding_window_size", "rel_extent"), WINDOW),
    **dict.fromkeys(("rotary_dim", "d_head", "attention_head_size", "linear_head_dim"), HEAD),
    **dict.fromkeys(("attention_heads", "linear_num_heads"), HEADS),
    **dict.fromkeys(("attention_hidden_size", "word_embed_proj_dim", "mamba_d_ssm"), WIDTH),
    **dict.fromkeys(("input_embedding_size", "embedding_dim"), WIDTH),
    **dict.fromkeys(("unpadded_vocab_size", "decoder_vocab_size"), VOCABULARY),
    **dict.fromkeys(("num_blocks", "num_layers_per_stack"), LAYERS),
    **dict.fromkeys(("mamba_d_head", "query_pre_attn_scalar", "dim_model_base"), HEAD),
    **dict.fromkeys(("shared_experts_intermediate_size", "d_inner"), 2 * WIDTH),
    "num_kv_shared_layers": 0,
    "type_vocab_size": 2,
    "num_nextn_predict_layers": 0,
    "num_mtp_layers": 0,
    **dict.fromkeys(("dropout", "attention_dropout", "hidden_dropout"), 0.0),
}
"""What sizes are called, and what they are here; only what a configuration has is set.

An indexer of sparse attention has 32 heads, as GLM's: a key's score is a sum over heads of
max(0, product) (DeepSeek-V3.2, arXiv 2512.02556), which with a few heads is exactly 0 for several
keys. Which of these are attended to then depends on how many tokens come later, in the model's own
forward pass without any cache as well.
"""


_LATENT: dict[str, Any] = {"num_key_value_heads": HEADS}
_HEAD: dict[str, Any] = {"head_dim": HEAD}
_SWITCHING: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 4.0, 6.0, 8.0],
    "original_max_position_embeddings": 32,
}
_CONV: dict[str, Any] = {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}
EXCEPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"), _LATENT),
    **dict.fromkeys(("kimi_linear", "longcat_flash", "youtu", "axk1"), _LATENT),
    **dict.fromkeys(("axk2", "bailing_hybrid", "dots3_note_text", "sarvam_mla"), _LATENT),
    "deepseek_v2": {**_LATENT, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": HEAD,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
    },
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral"), _HEAD),
    "nemotron": {"num_key_value_heads": 2, "head_dim": HEAD},
    "bamba": {"attn_layer_indices": [1], "mamba_d_head": 16},
    "falcon_h1": {"mamba_d_ssm": WIDTH, "mamba_n_heads": 4, "mamba_n_groups": 1},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"mamba_d_head": 16, "layer_types": ["linear_attention", "full_attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": _CONV,
    "lfm2_moe": _CONV,
    "mamba2": {"num_heads": 8, "n_groups": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "granitemoe": {"logits_scaling": 6.0},
    "granite": {"logits_scaling": 6.0},
    "minicpm3": {**_LATENT, "dim_model_base": 16},
    "phi3": {"original_max_position_embeddings": 32, "rope_parameters": _SWITCHING},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [16, 32]},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"mamba_headdim": 8, "n_mamba_heads": 8},
    "zaya": {"num_experts_per_tok": 1},
}
"""Settings by `model_type` that no rule makes."""

_MUSIC = "reads the codes of music, not of words"
_DRAFTS = "drafts for another model, whose keys and values it reads"
_SMALL = "no configuration as small was found that its class computes"
OUTSIDE: dict[str, str] = {
    **dict.fromkeys(("musicgen", "musicgen_melody"), _MUSIC),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), _DRAFTS),
    **dict.fromkeys(("granitemoehybrid", "hrm_text", "xlstm", "zamba", "zamba2"), _SMALL),
    "blt": "reads bytes in patches, by several models",
    "dots3_note": "names layers by number; its words are those of dots3_note_text",
    "gemma3n": "needs timm; its words are those of gemma3n_text",
}
"""Why a `model_type` is none that can be made here, where that is known."""


def kinds() -> list[str]:
    """Every `model_type` with a causal-LM class."""
    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def class_name(kind: str) -> str:
    """Of the model of a `model_type`."""
    return str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind])


def tiny_config(kind: str) -> Any:
    """The class's default configuration with small sizes."""
    default = CONFIG_MAPPING[kind]()
    return CONFIG_MAPPING[kind](**_changes(default, EXCEPTIONS.get(kind, {})))


def tiny_model(kind: str, seed: int = 0) -> PreTrainedModel:
    """A random float32 model of a `model_type`. Raises whatever its class does."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(tiny_config(kind))
        model.float()
        with torch.no_grad():
            for name, weights in model.named_parameters():
                last = name.rpartition(".")[2]
                if weights.ndim > 1 or last == "bias":
                    weights.normal_(0, SPREAD)
                elif last == "weight":
                    weights.add_(SPREAD * torch.randn_like(weights))
                else:
                    far = SMALL_GATES.get(kind, GATE)
                    weights.copy_(torch.linspace(-far, far, weights.numel()).view_as(weights))
    return model.eval()


def _changes(default: Any, exceptions: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a configuration's constructor that differ from its defaults."""
    known = {
        **default.to_dict(),
        **{
            name: getattr(default, name) for name in default.attribute_map if hasattr(default, name)
        },
    }
    changes = {name: size for name, size in SIZES.items() if _has_number(known.get(name))}
    changes |= {name: token for name, token in ENDS.items() if known.get(name) is not None}
    changes |= {name: True for name in ("is_decoder",) if name in known}
    for name, part in vars(default).items():
        if hasattr(part, "to_dict") and hasattr(part, "attribute_map"):
            changes[name] = type(part)(**_changes(part, EXCEPTIONS.get(part.model_type, {})))
    layers = _chosen_layers(known.get("layer_types"))
    if layers:
        count = len(known["layer_types"])
        for name, value in known.items():
            if isinstance(value, list) and len(value) == count and not _derived(default, name):
                changes[name] = [value[index] for index in layers]
        changes |= {name: len(layers) for name in ("num_hidden_layers",) if name in known}
    return {**changes, **exceptions}


def _derived(default: Any, name: str) -> bool:
    """Whether the configuration makes it of others."""
    return isinstance(getattr(type(default), default.attribute_map.get(name, name), None), property)


def _has_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _chosen_layers(types: list[str] | None) -> list[int]:
    """One of each kind at least, and LAYERS of them at least."""
    if not types:
        return []
    first = sorted({types.index(kind) for kind in types})
    rest = [index for index in range(len(types)) if index not in first]
    return sorted(first + rest[: max(0, LAYERS - len(first))])
