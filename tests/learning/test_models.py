"""A whole update on each family of models and each way to train it, from a checkpoint on disk."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.learning.building import GRPO, load_model, make_groups, update
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.forward.attention import recompute_layers
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.storage import checkpoint

pytestmark = pytest.mark.numbers


def updated_once(model: Any, **options: Any) -> tuple[PolicyLearner, Any]:
    algorithm = options.pop("algorithm", GRPO)
    learner = PolicyLearner(model, None, LearningConfig(**options), algorithm)
    groups = make_groups([[1.0, 0.0, 0.5], [0.0, 1.0]])
    return learner, update(learner, groups)


def gradient_norm(report: UpdateReport) -> float:
    assert report.problems == []
    assert report.metrics["policy/updates"] == 1
    return report.metrics["policy/gradient_norm"]


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2"])
@pytest.mark.parametrize("compute_dtype", ["auto", "bfloat16"])
def test_every_family_trains(family: str, compute_dtype: str) -> None:
    model = load_model(family)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    _, report = updated_once(model, compute_dtype=compute_dtype)
    assert gradient_norm(report) > 0
    still = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    assert still == []
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_bfloat16_measures_nearly_the_same_policy() -> None:
    exact = updated_once(load_model())[1].metrics
    rounded = updated_once(load_model(), compute_dtype="bfloat16")[1].metrics
    for name in ("policy/entropy", "policy/approx_kl", "policy/logprob_gap"):
        assert exact[name] != rounded[name]
        assert rounded[name] == pytest.approx(exact[name], rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2"])
def test_gradient_checkpointing_recomputes_and_changes_nothing(family: str) -> None:
    model = load_model(family)
    model.gradient_checkpointing_enable()
    calls = []
    model.get_decoder().layers[0].input_layernorm.register_forward_hook(lambda *_: calls.append(1))
    learner, report = updated_once(model)
    plain = updated_once(load_model(family))[1]
    assert gradient_norm(report) == pytest.approx(gradient_norm(plain), rel=1e-5)
    # check_supported runs the layer twice, the update's one micro-batch forward and again backward
    assert len(calls) == 4
    assert not any(m.training for m in learner.model.modules() if not list(m.children()))


@pytest.mark.parametrize("recompute", [False, True])
def test_lora_trains_its_adapters_alone(recompute: bool) -> None:
    model = load_model()
    if recompute:
        recompute_layers(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        wrapped = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    before = {name: p.detach().clone() for name, p in wrapped.named_parameters()}
    algorithm = make_algorithm("grpo", {"kl_coefficient": 0.1})
    learner, report = updated_once(wrapped, algorithm=algorithm, learning_rate=1e-2)
    assert gradient_norm(report) > 0
    # Without adapters the model is its own reference, and adapters start as nothing.
    assert report.metrics["policy/kl_reference"] == pytest.approx(0, abs=1e-6)
    changed = {n for n, p in wrapped.named_parameters() if not torch.equal(p, before[n])}
    assert changed
    assert all("lora_B" in name for name in changed)
    groups = make_groups([[1.0, 0.0]])
    assert update(learner, groups).metrics["policy/kl_reference"] > 1e-5


def test_a_lora_checkpoint_loads_like_any_model(tokenizer: Any, tmp_path: Path) -> None:
    load_model().save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    wrapped = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear"))
    learner, _ = updated_once(wrapped, learning_rate=1e-2)
    folder = checkpoint.save(tmp_path, 1, wrapped, tokenizer, {}, learner.state())
    assert (folder / "adapter_model.safetensors").is_file()
    assert checkpoint.load(folder).learner["updates"] == 1
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, wrapped(ids).logits)
        assert (loaded(ids).logits - load_model()(ids).logits).abs().max() > 1e-3


def test_dropout_is_off() -> None:
    model = load_model("llama", attention_dropout=0.5).train()
    plain = updated_once(load_model("llama"))[1]
    assert gradient_norm(updated_once(model)[1]) == gradient_norm(plain)
