"""Which models run through layers that are written out: those that fit, as they are now."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.engines.shapes import SHAPES, shaped
from turnwise.kernels.training import training_kernels
from turnwise.learning.hidden import fitting_kernels, hidden_states

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/proc/self/maps").exists(),
    reason="kernels are compiled by gcc, on Linux",
)


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
