"""Twins: weights of a fixed seed, and of a deep model as many layers as it has kinds."""

from typing import Any

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MistralConfig, MistralForCausalLM

from benchmarks.tiny_models import tiny_model
from tests.forward.models_for_tests import random_model
from tests.forward.test_routers import KINDS as ROUTED
from turnwise.errors import NotSupportedError
from turnwise.forward.make_runner import make_runner
from turnwise.forward.twin import FURTHEST, shallow_twin_of, twin_of

DEEP = 7
SLIDING, FULL = "sliding_attention", "full_attention"
EACH = [SLIDING, SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL]
DEEPSEEK = ROUTED["deepseek_v3"]
TWO_DENSE = {"first_k_dense_replace": 2, "num_experts_per_tok": 2}
KINDS: dict[str, tuple[Any, Any, dict[str, Any], int]] = {
    "all layers alike": (MistralConfig, MistralForCausalLM, {}, 2),
    "a full one among windows": (Gemma3TextConfig, Gemma3ForCausalLM, {"layer_types": EACH}, 4),
    "experts behind two dense ones": (*DEEPSEEK[:2], DEEPSEEK[2] | TWO_DENSE, 3),
}


def deep(kind: str, seed: int = 0) -> Any:
    return random_model(KINDS[kind][:3], seed, num_hidden_layers=DEEP)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shallow_twin_has_layers_of_each_kind(kind: str) -> None:
    model, kept = deep(kind), KINDS[kind][-1]
    twin = shallow_twin_of(model)
    assert len(twin.model.layers) == twin.config.num_hidden_layers == kept
    assert len(model.model.layers) == model.config.num_hidden_layers == DEEP
    assert twin(torch.arange(9)[None]).logits.isfinite().all()
    assert model(torch.arange(9)[None]).logits.isfinite().all()


@pytest.mark.parametrize("make", [twin_of, shallow_twin_of])
def test_a_twins_weights_are_those_of_its_shape(make: Any) -> None:
    """Whatever the model's are."""
    one, other = (deep("all layers alike", seed) for seed in (1, 2))
    with torch.no_grad():
        next(other.parameters()).fill_(float("nan"))
    pairs = zip(make(one).parameters(), make(other).parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert next(other.parameters()).isnan().all()


@pytest.mark.long
def test_gates_go_to_both_ends_however_few_there_are() -> None:
    """Where code bounds a gate in one form and not in the other, a twin has to be there: a
    Nemotron-H bounds its steps of time for a text and not token by token, so that no pass of the
    engine is right for it, with weights that its own twin had never had."""
    model = tiny_model("nemotron_h", seed=2)
    twin = dict(twin_of(model).named_parameters())
    gates = [weight for name, weight in twin.items() if name.endswith(("A_log", "dt_bias", ".D"))]
    assert len(gates) == 3
    for gate in gates:
        assert gate.aminmax() == (-FURTHEST, FURTHEST)
    for name, weight in twin.items():
        if weight.ndim == 1 and name.endswith(("norm.weight", "bias")):
            assert weight.min() < 0 < weight.max()
    with pytest.raises(NotSupportedError, match="its own caches are off by"):
        make_runner(model, 128, 128)


def test_no_memory_is_no_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("turnwise.forward.make_runner._computed", full)
    with pytest.raises(torch.OutOfMemoryError):
        make_runner(tiny_model("gpt_neo"), 128, 128)


def test_gates_are_small_where_large_ones_give_no_numbers() -> None:
    """DiffLlama's weight of its second attention is an exponential of a product of vectors."""
    twin = twin_of(tiny_model("diffllama"))
    assert twin(torch.arange(9)[None]).logits.isfinite().all()


def test_what_was_changed_in_a_layer_is_changed_in_its_twin() -> None:
    model, seen = deep("all layers alike"), []
    model.model.layers[1].register_forward_hook(lambda *_: seen.append(1))
    shallow_twin_of(model)(torch.arange(9)[None])
    assert seen == [1]
