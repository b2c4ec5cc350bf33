"""The written-out forward pass: equal to the model's own, and used for nothing else."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.forward.models_for_tests import tiny_model
from tests.forward.shapes import SHAPES, follow, off, shaped
from turnwise.forward.cache import CacheExtent
from turnwise.forward.runner import Runner

pytestmark = pytest.mark.numbers

UNKNOWN = {
    "bias": {"attention_bias": True},
    "another activation": {"hidden_act": "gelu"},
    "changing rotation": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_model(shape: str) -> None:
    model = shaped(shape)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.specialised
    assert off(follow(runner, 4), model) <= 1


def test_other_models_run_their_own_forward() -> None:
    """Of other families, with other parts, and one that computes something else."""
    for family in ("qwen3", "llama", "mistral", "gemma3"):
        known = family in ("qwen3", "llama")
        assert Runner(tiny_model(family), 10, 10).specialised == known
    for changes in UNKNOWN.values():
        assert not Runner(shaped("llama", **changes), 10, 10).specialised
    model = shaped("llama")
    model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: 1.01 * output)
    assert not Runner(model, 10, 10).specialised


def test_adapters_are_part_of_the_weights() -> None:
    model = get_peft_model(shaped("llama"), LoraConfig(r=2, target_modules="all-linear"))
    base = model.get_base_model()
    runner = Runner(base, tokens=160, longest=40)
    assert runner.specialised
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, 0.0, 0.3)
    assert off(follow(runner, 4), base) > 1, "the adapters were not changed"
    runner.refresh()
    assert off(follow(runner, 4), base) <= 1
    bound = LoraConfig(r=2, target_modules="all-linear", use_dora=True)
    other = get_peft_model(shaped("llama"), bound).get_base_model()
    assert not Runner(other, 10, 10).specialised


def test_attention_copies_no_keys() -> None:
    """Every call can take PyTorch's fused kernel; the other one copies what is attended to."""
    runner = Runner(shaped("llama"), tokens=160, longest=40)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        follow(runner, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_beginning_that_rows_share_is_read_once(dtype: torch.dtype) -> None:
    """In runs that are neighbours and runs that are not; what only one row has is its own."""
    model = shaped("qwen3").to(dtype)
    runner = Runner(model, tokens=10 * 100, longest=100)
    runs = [CacheExtent(100 * place, 100) for place in (0, 1, 2, 3, 5, 6, 8, 9)]
    shared, texts = 70, np.random.default_rng(0).integers(3, 300, (len(runs), 90))
    texts[:, :shared] = texts[0, :shared]
    histories = [text[: 80 + row].tolist() for row, text in enumerate(texts)]
    for run, history in zip(runs, histories, strict=True):
        runner.forward([run], np.array([history[:-1]]), np.arange(len(history) - 1)[None])
    with torch.inference_mode():
        for layer in runner.cache.layers:
            for run in runs[1:]:
                layer.keys[:, run.start : run.start + shared] = torch.nan
    last = np.array([history[-1:] for history in histories])
    places = np.array([[len(history) - 1] for history in histories])
    logits = runner.forward(runs, last, places, shared=shared).double().log_softmax(-1)
    assert off(list(zip(histories, logits, strict=True)), model, dtype) <= 1
    assert runner.forward(runs, last, places).isnan().any(1).tolist() == [False] + [True] * 7


def test_bfloat16_rounds_as_bfloat16_may() -> None:
    model = shaped("qwen3", tie_word_embeddings=False).to(torch.bfloat16)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.specialised
    assert off(follow(runner, 4), model, torch.bfloat16) <= 1
