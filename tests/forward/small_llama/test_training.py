"""Layers written out in training: what the model's own layers give, and their gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.compiled import needs_kernels
from tests.forward.shapes import SHAPES, shaped
from tests.rounding import excess
from turnwise.forward.hidden import last_hidden
from turnwise.forward.kernels.shape import Shape
from turnwise.forward.kernels.training import Heads, TrainingKernels, training_kernels
from turnwise.forward.prefix_trees import batch_trees, prefix_tree
from turnwise.forward.small_llama.training import Rows, asked_hidden

pytestmark = [needs_kernels, pytest.mark.numbers]
FULL = [name for name in SHAPES if "window" not in name]


def kernels_of(model: Any, dtype: torch.dtype = torch.float32) -> TrainingKernels:
    heads = model.config.num_attention_heads, model.config.num_key_value_heads
    found = training_kernels(Shape(*heads, model.config.head_dim, dtype))
    assert found is not None
    return found


def texts() -> tuple[Tensor, Tensor]:
    """Of 60 tokens at most, so that queries come in several pieces; of one only the first is asked,
    of one nothing."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 30, (6, 60), generator=generator)
    selected = torch.rand(6, 60, generator=generator) < 0.4
    selected[1, 33:] = False
    selected[2] = False
    selected[3] = torch.arange(60) == 0
    selected[4] = True
    return inputs, selected


def off(
    model: Any, dtype: torch.dtype, hidden: Callable[[], Tensor], inputs: Tensor, selected: Tensor
) -> float:
    """How many times as far as rounding may be hidden states and gradients are from float64's."""

    def own(exact: Any) -> list[Tensor]:
        found, gradients = outcome(exact, lambda: last_hidden(exact, inputs, False)[selected])
        return [found, *gradients.values()]

    found, gradients = outcome(model, hidden)
    return excess([found, *gradients.values()], model, own, dtype)


def outcome(model: Any, hidden: Callable[[], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states, and gradients of a sum that weighs them all differently."""
    model.zero_grad(set_to_none=True)
    found = hidden()
    generator = torch.Generator().manual_seed(1)
    (found * torch.randn(found.shape, generator=generator)).sum().backward()
    gradients = {
        name: weights.grad.clone()
        for name, weights in model.named_parameters()
        if weights.grad is not None
    }
    return found.detach(), gradients


@pytest.mark.parametrize("shape", FULL)
@pytest.mark.parametrize("size", [32, 64])
def test_hidden_states_and_gradients_are_those_of_the_model(shape: str, size: int) -> None:
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=size)
    inputs, selected = texts()
    rows, kernels = Rows.of(inputs, selected), kernels_of(model)
    dtype = kernels.dtype
    assert off(model, dtype, lambda: asked_hidden(model, kernels, rows), inputs, selected) <= 1


@pytest.mark.parametrize("shape", ["llama", "qwen3"])
def test_bfloat16_rounds_as_bfloat16_may(shape: str) -> None:
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=32)
    inputs, selected = texts()
    rows, kernels = Rows.of(inputs, selected), kernels_of(model, torch.bfloat16)
    dtype = kernels.dtype
    assert off(model, dtype, lambda: asked_hidden(model, kernels, rows), inputs, selected) <= 1


@pytest.mark.parametrize("shape", ["llama, one key head", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tree_is_its_sequences(shape: str, dtype: torch.dtype) -> None:
    """Three that branch in the middle of a run, at its end and at once, and one by itself."""
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=32)
    kernels = kernels_of(model, dtype)
    generator = np.random.default_rng(0)
    stem = generator.integers(0, 30, 50)
    ends = [generator.integers(0, 30, count) for count in (40, 3, 35, 20)]
    sequences = [
        np.concatenate([stem[:45], ends[0]]),
        np.concatenate([stem, ends[1]]),
        np.concatenate([stem, ends[1], ends[2]]),
        ends[3],
    ]
    wanted = [np.arange(len(ids)) % 3 == 1 for ids in sequences]
    given = list(zip(sequences, wanted, strict=True))
    trees = [prefix_tree(sequences[:3]), prefix_tree(sequences[3:])]
    tree_batch = batch_trees(trees, given, torch.device("cpu"))
    asked, which = torch.unique_consecutive(tree_batch.predictors, return_inverse=True)

    def together() -> Tensor:
        rows = Rows(tree_batch.ids, tree_batch.layout, asked)
        return asked_hidden(model, kernels, rows)[which][tree_batch.wanted]

    longest = max(map(len, sequences)) - 1
    padded = np.stack([np.pad(ids[:-1], (0, longest + 1 - len(ids))) for ids in sequences])
    chosen = np.stack([np.pad(one[1:], (0, longest + 1 - len(one))) for one in wanted])
    inputs, selected = torch.from_numpy(padded), torch.from_numpy(chosen)
    rows = Rows.of(inputs, selected)
    for hidden in (together, lambda: asked_hidden(model, kernels, rows)):
        assert off(model, dtype, hidden, inputs, selected) <= 1


def test_without_gradients_nothing_is_kept() -> None:
    config_class, model_class, options = SHAPES["qwen3"]
    model = shaped(config_class, model_class, **options, head_dim=32)
    rows = Rows.of(*texts())
    with torch.no_grad():
        found = asked_hidden(model, kernels_of(model), rows)
    assert found.grad_fn is None
    again = asked_hidden(model, kernels_of(model), rows)
    assert torch.equal(again.detach(), found)


def test_weights_that_are_frozen_stay_without_gradient() -> None:
    config_class, model_class, options = SHAPES["llama"]
    model = shaped(config_class, model_class, **options, head_dim=32)
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    inputs, selected = texts()
    rows, kernels = Rows.of(inputs, selected), kernels_of(model)
    dtype = kernels.dtype
    assert off(model, dtype, lambda: asked_hidden(model, kernels, rows), inputs, selected) <= 1


@pytest.mark.parametrize("part", ["q_proj", "v_proj", "q_norm", "o_proj"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_no_number_stays_so(part: str, dtype: torch.dtype) -> None:
    """By which an update finds out that the weights have diverged."""
    config_class, model_class, options = SHAPES["qwen3"]
    model = shaped(config_class, model_class, **options, head_dim=32)
    with torch.no_grad():
        getattr(model.model.layers[0].self_attn, part).weight.fill_(float("nan"))
    hidden = asked_hidden(model, kernels_of(model, dtype), Rows.of(*texts()))
    assert hidden.isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_of_new_tensors_does_not_matter(dtype: torch.dtype) -> None:
    """transformers changes it for all threads while it loads a model."""
    config_class, model_class, options = SHAPES["qwen3"]
    model = shaped(config_class, model_class, **options, head_dim=32)
    kernels, given = kernels_of(model), texts()
    before = outcome(model, lambda: asked_hidden(model, kernels, Rows.of(*given)))
    torch.set_default_dtype(dtype)
    try:
        found = asked_hidden(model, kernels, Rows.of(*given))
        found.float().sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found.detach(), before[0])


def test_many_threads_give_the_same_bits() -> None:
    """Of the kernels; products have rounding of their own."""
    torch.manual_seed(0)
    rows = Rows.of(*texts())
    tokens, width = len(rows.ids), 48
    shape = Shape(heads=4, key_heads=2, size=32, dtype=torch.float32)
    kernels = training_kernels(shape)
    assert kernels is not None
    packed, weights = torch.randn(tokens, shape.packed), torch.rand(32)
    turned = torch.randn(60, 32).cos(), torch.randn(60, 32).sin()
    heads = Heads(weights, weights, *turned, 1e-6)
    hidden, given = torch.randn(2, tokens * 40, width)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            attended = kernels.attend(packed, heads, rows.layout, rows.asked)
            gradients = kernels.attend_gradient(
                packed, heads, rows.layout, rows.asked, attended, functional.silu(attended[0])
            )
            normed = kernels.normalize_gradient(given, hidden, torch.ones(width), hidden * 2, 1e-6)
        finally:
            torch.set_num_threads(before)
        results.append((*attended, *gradients, *normed))
    for found in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found, results[0], strict=True))
