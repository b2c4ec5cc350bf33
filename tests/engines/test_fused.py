"""The written-out forward pass: equal to the model's own, and used for nothing else."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.engines.models_for_tests import VOCABULARY, tiny_model
from turnwise.engines.cache import PADDING, Run
from turnwise.engines.runner import Runner

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
UNKNOWN = {
    "bias": {"attention_bias": True},
    "another activation": {"hidden_act": "gelu"},
    "changing rotation": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    },
}


def shaped(config_class: Any, model_class: Any, **options: Any) -> PreTrainedModel:
    """A random model; weights of norms are random too."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = model_class(config_class(**(sizes | options)))
        for weight in model.parameters():
            if weight.ndim == 1:
                torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model.eval()


def expected(model: PreTrainedModel, history: list[int]) -> torch.Tensor:
    """Log-probabilities after the last token, from a forward pass without a cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([history]), use_cache=False).logits[0, -1]
    return logits.double().log_softmax(-1)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_model(shape: str) -> None:
    """A ragged prefill, more of one run, and a token of every run, an idle one between them."""
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.fused
    rows = {0: [5, 9, 2, 77, 30, 8], 1: [4, 4], 3: [11, 250, 3, 3, 19, 7]}

    def step(*inputs: tuple[int, list[int], int]) -> None:
        """Of each run, its number, all its inputs, and how many of them are new."""
        width = max(new for _, _, new in inputs)
        ids = np.zeros((len(inputs), width), np.int64)
        places = np.full((len(inputs), width), PADDING, np.int64)
        for index, (_, history, new) in enumerate(inputs):
            ids[index, width - new :] = history[len(history) - new :]
            places[index, width - new :] = range(len(history) - new, len(history))
        runs = [Run(40 * number, 40) for number, _, _ in inputs]
        logits = runner.forward(runs, ids, places)
        for row, (_, history, new) in zip(logits.double().log_softmax(-1), inputs, strict=True):
            if new:
                assert torch.allclose(row, expected(model, history), atol=1e-5)

    step(*((number, history, len(history)) for number, history in rows.items()))
    rows[1] += [8, 120, 33]
    step((1, rows[1], 3))
    for token in (17, 18, 19, 20):
        for history in rows.values():
            history.append(token)
        step((0, rows[0], 1), (1, rows[1], 1), (2, [1], 0), (3, rows[3], 1))


def test_small_llama_and_qwen3_models_are_written_out() -> None:
    runs = {family: Runner(tiny_model(family), 10, 10).fused for family in ("qwen3", "llama")}
    others = {family: Runner(tiny_model(family), 10, 10).fused for family in ("mistral", "gemma3")}
    assert all(runs.values())
    assert not any(others.values())


@pytest.mark.parametrize("part", UNKNOWN)
def test_a_model_with_other_parts_runs_its_own_forward(part: str) -> None:
    assert not Runner(shaped(LlamaConfig, LlamaForCausalLM, **UNKNOWN[part]), 10, 10).fused


def test_a_model_that_computes_something_else_runs_its_own_forward() -> None:
    model = shaped(LlamaConfig, LlamaForCausalLM)
    model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: 1.01 * output)
    assert not Runner(model, 10, 10).fused


def test_bfloat16_runs_its_own_forward() -> None:
    """It rounds every intermediate result, so two ways to compute cannot be compared."""
    assert not Runner(shaped(Qwen3Config, Qwen3ForCausalLM).to(torch.bfloat16), 10, 10).fused
