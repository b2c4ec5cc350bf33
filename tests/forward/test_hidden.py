"""Which models run through layers that are written out: those that fit, as they are now."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LNTuningConfig, LoraConfig, get_peft_model

from tests.compiled import needs_kernels
from tests.forward.shapes import SHAPES, shaped
from turnwise.forward.hidden import fitting_kernels, hidden_states
from turnwise.forward.kernels.training import training_kernels

pytestmark = [needs_kernels, pytest.mark.numbers]


def model_of(shape: str = "qwen3", **changes: Any) -> Any:
    config_class, model_class, options = SHAPES[shape]
    return shaped(config_class, model_class, **({"head_dim": 32} | options | changes))


@pytest.mark.parametrize("shape", ["qwen3", "llama", "llama with scaled rotation"])
@pytest.mark.parametrize("autocast", [False, True])
def test_small_models_fit(shape: str, autocast: bool) -> None:
    found = fitting_kernels(model_of(shape), autocast)
    assert found is not None
    assert found.dtype == (torch.bfloat16 if autocast else torch.float32)


def test_a_frozen_model_fits() -> None:
    assert fitting_kernels(model_of().requires_grad_(False), False) is not None


@pytest.mark.parametrize(
    "changes",
    [{"head_dim": 16}, {"attention_bias": True}, {"attention_dropout": 0.1}],
)
def test_other_shapes_do_not(changes: dict[str, Any]) -> None:
    assert fitting_kernels(model_of(**changes), False) is None


def test_layers_with_a_window_do_not() -> None:
    assert fitting_kernels(model_of("qwen3 with a window"), False) is None


def test_weights_of_another_type_do_not() -> None:
    model = model_of()
    assert fitting_kernels(model, False) is not None
    model.model.layers[1].mlp.up_proj.to(torch.bfloat16)
    assert fitting_kernels(model, False) is None


def test_adapters_that_come_later_are_seen() -> None:
    model = model_of("llama")
    assert fitting_kernels(model, False) is not None
    adapted = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
    assert fitting_kernels(adapted, False) is None


def test_checkpointing_that_comes_later_is_seen() -> None:
    model = model_of("llama")
    assert fitting_kernels(model, False) is not None
    model.gradient_checkpointing_enable()
    assert fitting_kernels(model, False) is None


def test_hooks_and_other_modules_that_come_later_are_seen() -> None:
    model = model_of()
    assert fitting_kernels(model, False) is not None
    for part in (model.model, model.model.layers[1], model.model.layers[0].mlp.up_proj):
        hook = part.register_forward_hook(lambda *_: None)
        assert fitting_kernels(model, False) is None
        hook.remove()
    assert fitting_kernels(model, False) is not None
    model.model.layers[0].mlp = Doubled(model.model.layers[0].mlp)
    assert fitting_kernels(model, False) is None


class Doubled(torch.nn.Module):
    """Somebody's own part of a model."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            inner.gate_proj,
            inner.up_proj,
            inner.down_proj,
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return 2 * self.down_proj(self.gate_proj(states) * self.up_proj(states))


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
def test_adapters_of_norms_are_seen() -> None:
    adapted = get_peft_model(model_of("llama"), LNTuningConfig(target_modules=["input_layernorm"]))
    assert fitting_kernels(adapted, False) is None


def test_a_frozen_body_with_a_head_of_its_own_fits() -> None:
    model = model_of("llama")
    model.model.requires_grad_(False)
    assert fitting_kernels(model, False) is not None


def test_the_first_use_may_be_in_inference_mode() -> None:
    model = model_of()
    with torch.inference_mode():
        assert fitting_kernels(model, True) is not None


@pytest.mark.parametrize("outer", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_autocast_around_it_changes_nothing(outer: torch.dtype, autocast: bool) -> None:
    model, (inputs, selected) = model_of(), some_texts()
    expected = hidden_states(model, inputs, selected, autocast)
    expected.sum().backward()
    gradient = model.model.embed_tokens.weight.grad.clone()
    again = model_of()
    with torch.autocast("cpu", outer):
        found = hidden_states(again, inputs, selected, autocast)
        found.sum().backward()
    assert torch.equal(found, expected)
    torch.testing.assert_close(again.model.embed_tokens.weight.grad, gradient)


def test_weights_that_change_before_the_gradient_are_an_error() -> None:
    model, (inputs, selected) = model_of(), some_texts()
    total = hidden_states(model, inputs, selected, False).sum()
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_second_gradient_is_an_error() -> None:
    model, (inputs, selected) = model_of(), some_texts()
    total = hidden_states(model, inputs, selected, False).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="let go"):
        total.backward()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, 1e-30, 0.0])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_weights_of_the_moment_decide_nothing(number: float, autocast: bool) -> None:
    """So a run that is resumed computes in the way in which it was begun."""
    model = model_of()
    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(number)
    assert fitting_kernels(model, autocast) is not None


def test_a_recipe_can_switch_kernels_off() -> None:
    model = model_of()
    model.kernels = "off"
    assert fitting_kernels(model, False) is None


def some_texts() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.arange(80).view(2, 40) * 7 % 60
    return inputs, torch.arange(40).expand(2, 40) % 3 > 0


def test_kernels_that_compute_something_else_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "gcc"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("gcc")} -Dsqrtf=fabsf "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    training_kernels.cache_clear()
    try:
        assert fitting_kernels(model_of(), False) is None
        assert fitting_kernels(model_of(), True) is None
    finally:
        training_kernels.cache_clear()
    assert "do not give what the model's give" in caplog.text


def test_nothing_that_is_asked_is_nothing() -> None:
    inputs = torch.arange(12).view(2, 6)
    found = hidden_states(model_of(), inputs, torch.zeros(2, 6, dtype=torch.bool), False)
    assert found.shape == (0, 48)
