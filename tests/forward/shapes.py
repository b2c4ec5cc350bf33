"""Models of the shapes that are written out, and what a runner says of them, step by step."""

from typing import Any

import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.forward.models_for_tests import random_model
from tests.rounding import excess
from turnwise.forward.cache import PADDING, CacheExtent
from turnwise.forward.runner import Runner

Found = list[tuple[list[int], torch.Tensor]]
"""Histories, and log-probabilities of the token after each, float64[vocabulary]."""

SHAPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama without groups": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 4}),
    "llama, one key head": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 1}),
    "llama with scaled rotation": (
        LlamaConfig,
        LlamaForCausalLM,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}},
    ),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"tie_word_embeddings": True}),
    "qwen3 with a window": (
        Qwen3Config,
        Qwen3ForCausalLM,
        {
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
}


def shaped(shape: str | tuple[Any, Any, dict[str, Any]], **changes: Any) -> PreTrainedModel:
    """A random model, of one of SHAPES; weights of norms are random too."""
    kind = SHAPES[shape] if isinstance(shape, str) else shape
    model: PreTrainedModel = random_model(kind, 0, **{"max_position_embeddings": 64} | changes)
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.ndim == 1:
            torch.nn.init.uniform_(weight, 0.5, 1.5, generator)
    return model


def off(found: Found, model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> float:
    """How many times as far as rounding may be they are from those that a model has in float64."""
    texts: list[list[int]] = []
    for history, _ in sorted(found, key=lambda one: -len(one[0])):
        if not any(text[: len(history)] == history for text in texts):
            texts.append(history)

    def logprobs(exact: Any) -> list[torch.Tensor]:
        with torch.no_grad():
            every = [exact(input_ids=torch.tensor([text]), use_cache=False) for text in texts]
        rows = [one.logits[0].log_softmax(-1) for one in every]
        return [_after(history, texts, rows) for history, _ in found]

    return excess([row for _, row in found], model, logprobs, dtype)


def _after(history: list[int], texts: list[list[int]], rows: list[torch.Tensor]) -> torch.Tensor:
    """Log-probabilities after a history that one of the texts begins with."""
    place = next(i for i, text in enumerate(texts) if text[: len(history)] == history)
    return rows[place][len(history) - 1]


def follow(runner: Runner, tokens: int) -> Found:
    """A ragged prefill, more of one run, and so many tokens of every run, an idle one between
    them; of all but the idle one what is found. Takes 160 tokens of cache."""
    rows = {0: [5, 9, 2, 77, 30, 8], 1: [4, 4], 3: [11, 250, 3, 3, 19, 7]}
    found: Found = []

    def step(*inputs: tuple[int, list[int], int]) -> None:
        """Of each run, its number, all its inputs, and how many of them are new."""
        width = max(new for _, _, new in inputs)
        ids = np.zeros((len(inputs), width), np.int64)
        places = np.full((len(inputs), width), PADDING, np.int64)
        for index, (_, history, new) in enumerate(inputs):
            ids[index, width - new :] = history[len(history) - new :]
            places[index, width - new :] = range(len(history) - new, len(history))
        runs = [CacheExtent(40 * number, 40) for number, _, _ in inputs]
        logits = runner.forward(runs, ids, places)
        for row, (_, history, new) in zip(logits.double().log_softmax(-1), inputs, strict=True):
            if new:
                found.append((list(history), row))

    step(*((number, history, len(history)) for number, history in rows.items()))
    rows[1] += [8, 120, 33]
    step((1, rows[1], 3))
    for token in range(17, 17 + tokens):
        for history in rows.values():
            history.append(token)
        step((0, rows[0], 1), (1, rows[1], 1), (2, [1], 0), (3, rows[3], 1))
    return found
