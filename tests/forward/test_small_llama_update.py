"""Layers written out in an update: what the model's own layers give, and their gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from tests.forward.shapes import SHAPES, shaped
from tests.rounding import excess
from turnwise.forward.hidden import hidden_states, last_hidden
from turnwise.forward.packing import Row
from turnwise.forward.small_llama_update import hidden_of_row, is_written_out

pytestmark = pytest.mark.numbers
FULL = [name for name in SHAPES if "window" not in name]


def model_of(shape: str = "qwen3", **changes: Any) -> Any:
    return shaped(shape, **({"head_dim": 32} | changes))


def texts() -> tuple[Tensor, Tensor]:
    """Of 60 tokens at most; of one only the first is asked, of one nothing."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 30, (6, 60), generator=generator)
    selected = torch.rand(6, 60, generator=generator) < 0.4
    selected[1, 33:] = False
    selected[2] = False
    selected[3] = torch.arange(60) == 0
    selected[4] = True
    return inputs, selected


def outcome(model: Any, hidden: Callable[[], Tensor]) -> list[Tensor]:
    """Hidden states, and gradients of a sum that weighs them all differently."""
    model.zero_grad(set_to_none=True)
    found = hidden()
    generator = torch.Generator().manual_seed(1)
    (found * torch.randn(found.shape, generator=generator)).sum().backward()
    gradients = [weights.grad for weights in model.parameters() if weights.grad is not None]
    return [found.detach(), *(gradient.clone() for gradient in gradients)]


@pytest.mark.parametrize("shape", FULL)
@pytest.mark.parametrize("size", [16, 32])
def test_hidden_states_and_gradients_are_those_of_the_model(shape: str, size: int) -> None:
    model, (inputs, selected) = model_of(shape, head_dim=size), texts()

    def own(exact: Any) -> list[Tensor]:
        return outcome(exact, lambda: last_hidden(exact, inputs, False)[selected])

    found = outcome(model, lambda: hidden_of_row(model, Row.of(inputs, selected)))
    assert excess(found, model, own, torch.float32) <= 1


def test_it_is_what_an_update_computes() -> None:
    """The same numbers come out where the model is asked for hidden states."""
    model, (inputs, selected) = model_of(), texts()
    assert is_written_out(model, autocast=False)
    written_out = hidden_of_row(model, Row.of(inputs, selected))
    assert torch.equal(hidden_states(model, inputs, selected, False), written_out)
    assert not torch.equal(last_hidden(model, inputs, False)[selected], written_out)


@pytest.mark.parametrize(
    ("shape", "changes"), [("qwen3", {"attention_bias": True}), ("qwen3 with a window", {})]
)
def test_other_models_are_not(shape: str, changes: dict[str, Any]) -> None:
    assert not is_written_out(model_of(shape, **changes), autocast=False)


def test_what_comes_later_is_seen() -> None:
    """Adapters, hooks, checkpointing, another type of some weights; and autocast."""
    model = model_of("llama")
    assert is_written_out(model, autocast=False)
    assert not is_written_out(model, autocast=True)
    hook = model.model.layers[1].register_forward_hook(lambda *_: None)
    assert not is_written_out(model, autocast=False)
    hook.remove()
    assert is_written_out(model, autocast=False)
    adapted = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
    assert not is_written_out(adapted.get_base_model(), autocast=False)
    model = model_of("llama")
    model.gradient_checkpointing_enable()
    assert not is_written_out(model, autocast=False)
    model = model_of("llama")
    model.model.layers[1].mlp.up_proj.to(torch.bfloat16)
    assert not is_written_out(model, autocast=False)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, 0.0])
def test_the_weights_of_the_moment_decide_nothing(number: float) -> None:
    """So a run that is resumed computes in the way in which it was begun."""
    model = model_of()
    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(number)
    assert is_written_out(model, autocast=False)
