"""Attention of a training pass in bfloat16: in float32 on a CPU, with or without trees."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

from tests.forward.models_for_tests import random_model
from tests.learning.building import load_model
from turnwise.forward.attention import fix_rotations, recompute_layers
from turnwise.forward.logprobs import token_logprobs

pytestmark = pytest.mark.numbers


class Attended(TorchDispatchMode):
    """Notes the type of numbers in which attention is computed, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        if "scaled_dot_product" in str(function):
            self.kinds.add(
                ("backward" if "backward" in str(function) else "forward", arguments[0].dtype)
            )
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_attention_is_in_float32_where_layers_are_not_computed_again(checkpointing: bool) -> None:
    model = load_model().train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    inputs = torch.arange(40).view(2, 20) % 30 + 1
    every = torch.ones_like(inputs, dtype=torch.bool)
    with Attended() as attended:
        logprobs, _ = token_logprobs(model, inputs, every, inputs.flatten(), 1.0, autocast=True)
        logprobs.sum().backward()
    found = torch.bfloat16 if checkpointing else torch.float32
    assert attended.kinds == {("forward", found), ("backward", found)}
    assert model.config._attn_implementation == "sdpa"


def test_layers_are_recomputed_by_the_older_name_of_transformers_too() -> None:
    """Before 5.23 models have no `activation_checkpointing_enable`."""
    given: list[dict[str, Any]] = []
    model = load_model()
    older = SimpleNamespace(config=model.config, gradient_checkpointing_enable=given.append)
    recompute_layers(older)
    assert given[0].keys() == {"use_reentrant", "context_fn"}


SWITCH = 32
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0, 4.0, 6.0, 8.0],
    "original_max_position_embeddings": SWITCH,
}
SWITCHING: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "dynamic": (
        LlamaConfig,
        LlamaForCausalLM,
        {"rope_parameters": DYNAMIC, "max_position_embeddings": SWITCH},
    ),
    "longrope": (
        Phi3Config,
        Phi3ForCausalLM,
        {
            "rope_parameters": LONGROPE,
            "max_position_embeddings": 128,
            "original_max_position_embeddings": SWITCH,
        },
    ),
}


def switching(kind: str) -> Any:
    """A model whose angles change beyond SWITCH tokens."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "head_dim": 8, "pad_token_id": None}
    return random_model(SWITCHING[kind], 0, **sizes)


@torch.no_grad()
def beside(model: Any, longer: int) -> torch.Tensor:
    """Log-probabilities of a text of 10 tokens, padded on the right to a longer one's length."""
    ids = torch.zeros(1, longer, dtype=torch.int64)
    ids[0, :10] = torch.arange(10) + 3
    found: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0, :10].log_softmax(-1)
    return found


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_row_does_not_depend_on_longer_ones(kind: str) -> None:
    model = switching(kind)
    assert (beside(model, 10) - beside(model, 40)).abs().max() > 0.1  # so it is with transformers
    fix_rotations(model, 64)
    torch.testing.assert_close(beside(model, 10), beside(model, 40), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_the_longest_text_is_as_the_model_has_it(kind: str) -> None:
    own, fixed = switching(kind), switching(kind)
    fix_rotations(fixed, 40)
    assert torch.equal(beside(own, 40), beside(fixed, 40))
    short = switching(kind)
    fix_rotations(short, SWITCH)
    assert torch.equal(beside(switching(kind), 10), beside(short, 10))
