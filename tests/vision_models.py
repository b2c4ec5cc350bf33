"""Tiny vision-language models with random weights, one of each family, and images for them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    CLIPImageProcessorPil,
    GotOcr2ImageProcessorPil,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
)

from tests.fakes import byte_tokenizer
from turnwise.config import ModelConfig
from turnwise.models.load import load_model
from turnwise.tokens import Image

FAMILIES = ("idefics3", "internvl", "llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm")
TOKENS = (
    "<image>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<img>",
    "</img>",
    "<fake_token_around_image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)),
)
HALF = (0.5, 0.5, 0.5)
WORDS = {
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
TOWER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 4,
    "image_size": 16,
}
PATCHES: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
PROCESSORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "idefics3": (Idefics3Processor, {"image_seq_len": 4}),
    "llava": (
        LlavaProcessor,
        {
            "patch_size": 4,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
    ),
}
"""Processors with options that are not those of the family's usual size."""
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
SECTIONS = (2, 3, 3)
"""Pairs of a head's 16 numbers that are turned by time, row and column."""


def image(*colours: int, size: tuple[int, int] = (16, 16)) -> bytes:
    """A PNG of vertical stripes of grey, 0 to 255; `size` is width and height."""
    columns = np.repeat(np.array(colours, np.uint8), -(-size[0] // len(colours)))[: size[0]]
    image = PIL.Image.fromarray(np.tile(columns, (size[1], 1))).convert("RGB")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def noise(seed: int, size: tuple[int, int] = (16, 16)) -> bytes:
    """A PNG of random colours."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def vision_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and those of all families around images."""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True) for token in TOKENS], special_tokens=True)
    return tokenizer


def save_vision_model(folder: Path, family: str = "llava", seed: int = 0, head: int = 16) -> Path:
    """A random model of the family with its tokenizer and image processor on disk; `head` is the
    width of its decoder's two heads."""
    tokenizer = vision_tokenizer()
    words = {
        **WORDS,
        "hidden_size": 2 * head,
        "head_dim": head,
        "max_position_embeddings": 512,
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
    }
    config = AutoConfig.for_model(
        family,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        **_settings(family, words),
    )
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # so that what is shown makes a difference
        for name, weight in model.named_parameters():
            if weight.dim() >= 2 and "embed_tokens" not in name and "lm_head" not in name:
                weight.normal_(0, weight[0].numel() ** -0.5)
            elif "lm_head" in name:
                weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _processor(family).save_pretrained(folder)
    return folder


def save_served_model(folder: Path, family: str) -> Path:
    """A random model that vLLM serves on a CPU, in files as one of its usual size has them."""
    save_vision_model(folder, family, head=32)
    if family in PROCESSORS:
        kind, options = PROCESSORS[family]
        kind(_processor(family), vision_tokenizer(), **options).save_pretrained(folder)
    named = {"image_token": "<image>", "video_token": "<global-img>"}
    vision_tokenizer().save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, extra_special_tokens=named)
    tokenizer.save_pretrained(folder)
    if family == "llava":
        file, own = folder / "model.safetensors", "vision_tower."
        weights = {
            name.replace(own, f"{own}vision_model."): weight
            for name, weight in load_file(file).items()
        }
        save_file(weights, file, {"format": "pt"})
    return folder


def vision_model(folder: Path, family: str = "llava", **settings: Any) -> tuple[Any, Any]:
    """Model and tokenizer, as a run has them."""
    if not folder.is_dir():
        save_vision_model(folder, family)
    return load_model(ModelConfig(name=str(folder), device="cpu", **settings))


def told(model: Any, *parts: bytes | list[int]) -> tuple[list[int], list[Image]]:
    """Ids and images of a history, from words and PNGs."""
    ids: list[int] = []
    images = []
    for part in parts:
        own = part
        if isinstance(part, bytes):
            own = model.image_reader.tokens(part)
            images.append(Image(len(ids), len(own), part))
        ids += own
    return ids, images


def own_logits(
    model: Any, ids: Sequence[int], pngs: Sequence[bytes], gradient: bool = False
) -> torch.Tensor:
    """[n, vocabulary], of the model's own forward, which is given the pixels."""
    token, processor = model.config.image_token_id, _processor(model.config.model_type)
    options = model.image_reader.family.options
    images = [PIL.Image.open(io.BytesIO(png)).convert("RGB") for png in pngs]
    each = [processor([image], return_tensors="pt", **options) for image in images]
    given: dict[str, Any] = {}
    if each:
        axis = 1 if each[0]["pixel_values"].dim() == 5 else 0
        given["pixel_values"] = torch.cat(
            [one["pixel_values"].to(model.dtype) for one in each], dim=axis
        )
        if "pixel_attention_mask" in each[0]:
            given["pixel_attention_mask"] = torch.cat(
                [one["pixel_attention_mask"] for one in each], dim=axis
            )
        if "image_grid_thw" in each[0]:
            given["image_grid_thw"] = torch.cat([one["image_grid_thw"] for one in each])
            given["mm_token_type_ids"] = (torch.tensor([list(ids)]) == token).int()
    with torch.set_grad_enabled(gradient):
        output = model(input_ids=torch.tensor([list(ids)]), use_cache=False, **given)
    logits: torch.Tensor = output.logits[0]
    return logits


def own_logprobs(model: Any, ids: Sequence[int], pngs: Sequence[bytes], count: int) -> torch.Tensor:
    """[count], of the last so many ids, by the model's own forward."""
    logprobs = own_logits(model, ids, pngs).log_softmax(-1)[-count - 1 : -1]
    return logprobs.gather(1, torch.tensor(list(ids[-count:]))[:, None])[:, 0]


def _settings(family: str, words: dict[str, Any]) -> dict[str, Any]:
    if family.startswith("qwen"):
        width, sections = words["hidden_size"], [n * words["head_dim"] // 16 for n in SECTIONS]
        tower = {**PATCHES, "out_hidden_size": width}
        if family == "qwen2_vl":
            tower = {**PATCHES, "embed_dim": 16, "hidden_size": width, "mlp_ratio": 2}
        if family == "qwen2_5_vl":
            tower |= {"window_size": 16, "fullatt_block_indexes": [1]}
        if family == "qwen3_vl":
            tower |= {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64}
        rope = {**ROPE, "mrope_section": sections}
        if family == "qwen3_vl":
            rope["mrope_interleaved"] = True  # as ever in transformers; vLLM reads it
        return {
            "text_config": {**words, "rope_parameters": rope},
            "vision_config": tower,
            "tie_word_embeddings": False,
        }
    text = {**words, "model_type": "llama"}
    if family == "llava":
        tower = {**TOWER, "model_type": "clip_vision_model"}
        return {"text_config": text, "vision_config": tower, "vision_feature_layer": -1}
    if family == "internvl":
        tower = {**TOWER, "image_size": [16, 16], "patch_size": [4, 4]}
        return {"text_config": text, "vision_config": tower, "image_seq_length": 4}
    return {"text_config": text, "vision_config": TOWER, "scale_factor": 2}


def _processor(family: str) -> Any:
    """For images of 16 by 16; the tiling ones cut larger images up."""
    if family.startswith("qwen"):
        return Qwen2VLImageProcessorPil(
            patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 4096}
        )
    if family == "llava":
        size = {"height": 16, "width": 16}
        return CLIPImageProcessorPil(size=size, crop_size=size, image_mean=HALF, image_std=HALF)
    if family == "internvl":
        return GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, max_patches=4)
    return Idefics3ImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
