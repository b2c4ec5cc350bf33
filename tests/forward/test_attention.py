"""Attention of a training pass in bfloat16: in float32 on a CPU, with or without trees."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.learning.conftest import LoadModel
from turnwise.forward.logprobs import token_logprobs

pytestmark = pytest.mark.numbers


class Attended(TorchDispatchMode):  # type: ignore[misc]
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
def test_attention_is_in_float32_where_layers_are_not_computed_again(
    load_model: LoadModel, checkpointing: bool
) -> None:
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
