"""Routers choose in float32, whatever the model is in."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.forward.shapes import shaped
from turnwise.forward.routing import route_in_float32, routers_of

KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, {"num_experts": 8}),
    "mixtral": (MixtralConfig, MixtralForCausalLM, {"num_local_experts": 8}),
    "deepseek_v3": (
        DeepseekV3Config,
        DeepseekV3ForCausalLM,
        {
            "n_routed_experts": 8,
            "num_key_value_heads": 4,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "head_dim": 8,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
}


def moe(kind: str) -> PreTrainedModel:
    return shaped(KINDS[kind], num_experts_per_tok=2)


def routers(model: PreTrainedModel) -> list[Any]:
    return [router for block in model.modules() for router in routers_of(block)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "bfloat16"])
def test_logits_of_experts_are_not_rounded(kind: str, autocast: bool) -> None:
    model = moe(kind)
    route_in_float32(model)
    model = copy.deepcopy(model if autocast else model.bfloat16())
    router = routers(model)[0]
    seen: list[torch.Tensor] = []
    router.register_forward_hook(lambda module, given, _: seen.append(given[0]))
    ids = torch.arange(24)[None]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model(input_ids=ids)
        found = router(seen[0])
    states = seen[0].reshape(-1, router.weight.shape[1]).float()
    exact = states @ router.weight.float().T
    logits = found[0] if isinstance(found, tuple) else found
    assert logits.dtype == torch.float32
    assert torch.allclose(logits.float(), exact, 1e-5, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_in_float32_nothing_changes(kind: str, tmp_path: Path) -> None:
    ids = torch.arange(24)[None]
    model = moe(kind)
    with torch.no_grad():
        before = model(input_ids=ids).logits
        route_in_float32(model)
        route_in_float32(model)
        assert torch.equal(model(input_ids=ids).logits, before)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is type(model)
    assert again.state_dict().keys() == model.state_dict().keys()


def test_other_models_have_none() -> None:
    assert not routers(shaped("llama"))
