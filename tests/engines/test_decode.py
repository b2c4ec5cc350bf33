"""A decode step by compiled kernels: equal to the model's own forward pass."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tests.engines.shapes import SHAPES, distance, follow, model_logprobs, shaped
from turnwise.engines.kernels import kernels_for
from turnwise.engines.runner import Runner

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/proc/self/maps").exists(),
    reason="kernels are compiled by gcc, on Linux",
)
STEPS = 32
"""Histories of up to 38 tokens: more than the kernels take at once, and no multiple of it."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [32, 64])
def test_logits_are_those_of_the_model(shape: str, size: int) -> None:
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=size)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.compiled
    assert distance(follow(runner, STEPS), model) < 1e-4


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_bfloat16_is_nearer_to_float32_than_the_models_own_forward(family: str) -> None:
    config_class, model_class, options = SHAPES[family]
    exact = shaped(config_class, model_class, **options, head_dim=32)
    model = shaped(config_class, model_class, **options, head_dim=32).to(torch.bfloat16)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.compiled
    found = follow(runner, STEPS)
    own = [(history, model_logprobs(model, history)) for history, _ in found]
    assert distance(found, exact) < 1.2 * distance(own, exact)


def test_rows_do_not_depend_on_threads() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    one = follow(Runner(model, tokens=160, longest=40), STEPS)
    torch.set_num_threads(2)
    try:
        two = follow(Runner(model, tokens=160, longest=40), STEPS)
    finally:
        torch.set_num_threads(1)
    for (_, first), (_, second) in zip(one, two, strict=True):
        assert torch.allclose(first, second, rtol=0, atol=1e-5)


def test_new_weights_are_seen() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40)
    with torch.no_grad():
        for weights in model.parameters():
            weights += 0.05 * torch.ones_like(weights)
    runner.refresh()
    assert distance(follow(runner, STEPS), model) < 1e-4


def test_kernels_that_compute_something_else_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_compiler(tmp_path, monkeypatch, 'exec {gcc} -Dsqrtf=fabsf "$@"')
    model = shaped(LlamaConfig, LlamaForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.fused
    assert not runner.compiled
    assert "do not give what the model gives" in caplog.text
    assert distance(follow(runner, 4), model) < 1e-5


def test_a_compiler_that_fails_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_compiler(tmp_path, monkeypatch, "echo no such option >&2; exit 1")
    assert not Runner(shaped(LlamaConfig, LlamaForCausalLM, head_dim=32), 10, 10).compiled
    assert "sampling is slower: no such option" in caplog.text


def test_without_a_compiler_there_are_no_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    kernels_for.cache_clear()
    runner = Runner(shaped(LlamaConfig, LlamaForCausalLM, head_dim=32), 10, 10)
    assert runner.fused
    assert not runner.compiled
    assert not caplog.text


def with_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of the name gcc, before all others, and an empty cache."""
    program = tmp_path / "gcc"
    program.write_text("#!/bin/sh\n" + script.format(gcc=shutil.which("gcc")) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    kernels_for.cache_clear()


@pytest.fixture(autouse=True)
def _forget_kernels() -> Any:
    yield
    kernels_for.cache_clear()
