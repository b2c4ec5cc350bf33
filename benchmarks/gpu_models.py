"""Models of `gpu.py`, with random weights; what fits on its device, and how work
on it is timed."""

import gc
import math
import resource
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from gpu_shapes import SHAPES
from transformers import Qwen3Config, Qwen3ForCausalLM

BYTES = {
    "correctness": 8,
    "sampling": 4,
    "generate": 4,
    "training": 16,
    "step": 16,
    "lora": 4,
    "trl": 50,
    "vllm": 4,
}
"""Of a weight, without which a part cannot be: weights are made in float32, and `correctness` has
two models; gradients and AdamW's two moments; all of this in each of the three of `trl`, of which
one has masters."""


class WrongError(Exception):
    """Figures of a part that mean nothing; the parts after it run."""


def config_of(shape: str, **others: Any) -> Qwen3Config:
    """The configuration of that shape, with other settings."""
    width, layers, heads, key_heads, head, inner, vocabulary, tied = SHAPES[shape]
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": head,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    return Qwen3Config(**{**settings, **others})


def random_model(shape: str, kind: str, device: str, seed: int = 0) -> Any:
    """A Qwen3 of that shape, without an end of text."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = Qwen3ForCausalLM(config_of(shape))
    return model.to(getattr(torch, kind)).eval()


def with_adapters(model: Any, rank: int) -> Any:
    """The model with adapters in its layers, which alone are trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return get_peft_model(model, config).get_base_model()


def size(model: Any) -> str:
    """Such as 0.60B."""
    return f"{sum(weight.numel() for weight in model.parameters()) / 1e9:.2f}B"


def needed(arguments: Namespace, shape: str, part: str) -> int:
    """Bytes without which a part cannot be; 0 where it has a model of its own."""
    width, layers, heads, key_heads, head, inner, vocabulary, tied = SHAPES[shape]
    layer = head * (2 * heads + 2 * key_heads) * width + 3 * width * inner
    count = layers * layer + vocabulary * width * (1 if tied and part != "trl" else 2)
    masters = part in ("training", "step") and arguments.pure and arguments.type == "bfloat16"
    return count * (BYTES.get(part, 0) + (2 if masters else 0))


def free_memory(device: str) -> float:
    """Bytes that are free on a GPU; a CPU's are not counted."""
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else math.inf


def release(arguments: Namespace) -> None:
    """Give back to the device what is not used any more; a stopped engine is in circles."""
    gc.collect()
    if arguments.device.startswith("cuda"):
        torch.cuda.empty_cache()


def timed(work: Callable[[], object], arguments: Namespace) -> tuple[float, dict[str, str]]:
    """Median seconds, after one round that does not count, and the memory it took."""
    device, seconds = arguments.device, []
    gpu = device.startswith("cuda")
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(arguments.rounds + 1):
        gc.collect()
        if gpu:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    if gpu:
        most, name = torch.cuda.max_memory_allocated(device), "memory, GB"
    else:
        most, name = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "memory of the process, GB",
        )
    return statistics.median(seconds[1:]), {name: f"{most / 1e9:.2f}"}
