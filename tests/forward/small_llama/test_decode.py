"""A decode step by compiled kernels: equal to the model's own forward pass."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tests.compiled import needs_kernels
from tests.engines.driving import PROMPT, assert_logprobs, run
from tests.forward.shapes import SHAPES, follow, off, shaped
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.forward.cache import CacheExtent
from turnwise.forward.kernels.decode import decode_kernels
from turnwise.forward.runner import Runner

pytestmark = [needs_kernels, pytest.mark.numbers]
STEPS = 32
"""Histories of up to 38 tokens: more than the kernels take at once, and no multiple of it."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [32, 64])
def test_logits_are_those_of_the_model(shape: str, size: int) -> None:
    config_class, model_class, options = SHAPES[shape]
    model = shaped(config_class, model_class, **options, head_dim=size)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.compiled
    assert off(follow(runner, STEPS), model) <= 1


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_bfloat16_rounds_as_bfloat16_may(family: str) -> None:
    config_class, model_class, options = SHAPES[family]
    model = shaped(config_class, model_class, **options, head_dim=32).to(torch.bfloat16)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.compiled
    assert off(follow(runner, STEPS), model, torch.bfloat16) <= 1


def test_rows_do_not_depend_on_threads() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    assert off(follow(Runner(model, tokens=160, longest=40), STEPS), model) <= 1
    torch.set_num_threads(2)
    try:
        assert off(follow(Runner(model, tokens=160, longest=40), STEPS), model) <= 1
    finally:
        torch.set_num_threads(1)


def test_new_weights_are_seen() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40)
    with torch.no_grad():
        for weights in model.parameters():
            weights += 0.05 * torch.ones_like(weights)
    runner.refresh()
    assert off(follow(runner, STEPS), model) <= 1


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj", "q_norm", "k_norm"])
def test_what_is_no_number_stays_so(part: str) -> None:
    """By which sampling finds out that the weights have diverged."""
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40)
    follow(runner, 1)
    with torch.no_grad():
        getattr(model.model.layers[0].self_attn, part).weight.fill_(float("nan"))
    runner.refresh()
    runs, ids, positions = [CacheExtent(0, 40)], np.array([[5]]), np.array([[7]])
    assert runner.forward(runs, ids, positions).isnan().all()


def test_runs_are_read_wherever_they_are(tokenizer: Any) -> None:
    """Nothing is moved to bring runs of one size together."""
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32, max_position_embeddings=256)

    async def turn(engine: EmbeddedEngine, index: int) -> None:
        prompt = [1 + index, *PROMPT] * (1 if index % 2 else 8)
        completion = await engine.generate(prompt, Sampling(max_tokens=9), session=str(index))
        assert_logprobs(model, prompt, completion)

    async def body(engine: EmbeddedEngine) -> None:
        for index in range(12):
            engine.open(str(index))
        await asyncio.gather(*(turn(engine, index) for index in range(12)))
        seated = engine._allocator.seated
        assert [session.name for session in seated] == [str(index) for index in range(12)]
        assert {session.run.size for session in seated if session.run} == {64, 128}

    options = {"max_sequences": 12, "max_tokens": 250, "kv_cache_tokens": 2900}
    run(model, tokenizer, body, **options, deterministic=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_of_new_tensors_does_not_matter(dtype: torch.dtype) -> None:
    """transformers changes it for all threads while it loads a model."""
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    torch.set_default_dtype(dtype)
    try:
        runner = Runner(model, tokens=160, longest=40)
        found = follow(runner, STEPS)
    finally:
        torch.set_default_dtype(torch.float32)
    assert runner.compiled
    assert off(found, model) <= 1


def test_a_model_of_another_type_afterwards_is_an_error() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40)
    model.to(torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"float32, and is torch\.bfloat16 now"):
        runner.refresh()


def test_kernels_that_compute_something_else_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_compiler(tmp_path, monkeypatch, 'exec {gcc} -Dsqrtf=fabsf "$@"')
    model = shaped(LlamaConfig, LlamaForCausalLM, head_dim=32)
    runner = Runner(model, tokens=160, longest=40)
    assert runner.specialised
    assert not runner.compiled
    assert "do not give what the model gives: not used" in caplog.text
    assert off(follow(runner, 4), model) <= 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, 1e-30, 0.0])
def test_the_weights_of_the_moment_decide_nothing(number: float) -> None:
    """So a run that is resumed samples in the way in which it was begun."""
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(number)
    assert Runner(model, tokens=160, longest=40).compiled


def test_a_recipe_can_switch_kernels_off() -> None:
    model = shaped(Qwen3Config, Qwen3ForCausalLM, head_dim=32)
    model.kernels = "off"
    runner = Runner(model, tokens=160, longest=40)
    assert runner.specialised
    assert not runner.compiled


def test_a_compiler_that_fails_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_compiler(tmp_path, monkeypatch, "echo no such option >&2; exit 1")
    assert not Runner(shaped(LlamaConfig, LlamaForCausalLM, head_dim=32), 10, 10).compiled
    assert "all is slower: no such option" in caplog.text


def test_a_compiler_that_cannot_be_started_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_compiler(tmp_path, monkeypatch, "")
    (tmp_path / "gcc").write_bytes(b"\x7fELF")
    assert not Runner(shaped(LlamaConfig, LlamaForCausalLM, head_dim=32), 10, 10).compiled
    assert "all is slower" in caplog.text


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "file" / "cache"))
    decode_kernels.cache_clear()
    assert Runner(shaped(LlamaConfig, LlamaForCausalLM, head_dim=32), 10, 10).compiled


def test_a_kept_file_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shaped(LlamaConfig, LlamaForCausalLM, head_dim=32)
    with_compiler(tmp_path, monkeypatch, 'echo "$@" >> {notes}; exec {gcc} "$@"')
    calls = []
    for _ in range(2):
        decode_kernels.cache_clear()
        assert Runner(model, 10, 10).compiled
        lines = (tmp_path / "notes").read_text().splitlines()
        calls.append([line for line in lines if "--version" not in line])
    assert len(calls[0]) == len(calls[1]) == 2  # compiled and linked, once
    assert [path.suffix for path in (tmp_path / "cache" / "kernels").iterdir()] == [".so"]


def test_without_a_compiler_there_are_no_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    decode_kernels.cache_clear()
    runner = Runner(shaped(LlamaConfig, LlamaForCausalLM, head_dim=32), 10, 10)
    assert runner.specialised
    assert not runner.compiled
    assert not caplog.text


def with_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of the name gcc, before all others, and an empty cache."""
    program = tmp_path / "gcc"
    program.write_text(
        "#!/bin/sh\n" + script.format(gcc=shutil.which("gcc"), notes=tmp_path / "notes") + "\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    decode_kernels.cache_clear()


@pytest.fixture(autouse=True)
def _forget_kernels() -> Any:
    yield
    decode_kernels.cache_clear()
