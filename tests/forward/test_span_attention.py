"""Attention by spans of the cache: where a model can have it, and that others do without."""

from typing import Any

import pytest
import torch
from transformers import GraniteForCausalLM, MistralForCausalLM
from transformers.integrations import sdpa_attention

from benchmarks.tiny_models import tiny_config
from benchmarks.tiny_models import tiny_model as architecture
from tests.engines.driving import PROMPT, checked, each, running
from tests.forward.models_for_tests import tiny_model
from tests.forward.shapes import follow, off, shaped
from turnwise.forward.attention import attending
from turnwise.forward.make_runner import make_runner
from turnwise.forward.runner import IN_SPANS, Runner, attend_in_spans

pytestmark = pytest.mark.numbers


class KeepsToItself(MistralForCausalLM):
    """A model that passes nothing on to its attention."""

    def forward(
        self, input_ids: Any = None, position_ids: Any = None, pool: Any = None, **kwargs: Any
    ) -> Any:
        return super().forward(input_ids, position_ids=position_ids, **kwargs)


class NearlyRight(MistralForCausalLM):
    """Over spans it is off by 0.001 nats, which is no rounding."""

    def forward(
        self, input_ids: Any = None, position_ids: Any = None, pool: Any = None, **kwargs: Any
    ) -> Any:
        given = kwargs if pool is None else {**kwargs, "pool": pool}
        output = super().forward(input_ids, position_ids=position_ids, **given)
        if pool is not None:
            output.logits[..., ::2] += 2e-3
        return output


CHANGED = {"keeps to itself": KeepsToItself, "nearly right": NearlyRight}


def made(kind: str) -> Any:
    """A model that is not written out, of each kind."""
    if kind in CHANGED:
        model = CHANGED[kind](tiny_model("mistral").config).eval()
        model.load_state_dict(tiny_model("mistral").state_dict())
        return model
    family, _, implementation = kind.partition(" ")
    model = tiny_model(family)
    model.set_attn_implementation(implementation or "sdpa")
    return model


def spans_of(model: Any) -> bool:
    runner = make_runner(model, 100, 50)
    return runner.by_spans


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "by_spans"),
    [
        ("mistral", True),
        ("gemma3", True),
        ("gemma3 eager", False),
        ("keeps to itself", False),
        ("nearly right", False),
    ],
)
async def test_histories_of_all_lengths_are_seen_by_each(kind: str, by_spans: bool) -> None:
    model = made(kind)
    assert spans_of(model) == by_spans

    prompts = [(PROMPT * 20)[: 3 + 40 * index] for index in range(5)]
    async with running(model, max_sequences=5) as engine:
        await each(
            engine, 5, lambda one: checked(engine, model, prompts[one], 5, str(one), seed=one)
        )


@pytest.mark.long
@pytest.mark.parametrize("number", [0.0, 1e4, float("nan")])
def test_present_weights_do_not_decide(number: float) -> None:
    """A run that goes on with other weights goes the way it went before."""
    for kind, by_spans in (("mistral", True), ("keeps to itself", False)):
        model = made(kind)
        with torch.no_grad():
            for weight in model.parameters():
                weight.fill_(number)
        assert spans_of(model) == by_spans


def test_a_mask_made_of_values_has_no_spans_even_where_it_masks_nothing_yet() -> None:
    """Doge's, whose scale is 0 until it has been trained."""
    model = architecture("doge")
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.A)
    assert not spans_of(model)


def test_the_bound_grows_with_what_rounding_does() -> None:
    """Logits that are a thousand times as large differ by a thousand times as much."""
    config = tiny_config("granite")
    config.logits_scaling = 1e-3  # they are divided by it
    assert spans_of(GraniteForCausalLM(config))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_type_does_not_decide(dtype: torch.dtype) -> None:
    assert spans_of(made("mistral").to(dtype))
    assert not spans_of(made("nearly right").to(dtype))


def test_keys_of_grouped_queries_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(shaped("llama"), tokens=160, longest=40, spans=True, specialised=False)
    monkeypatch.delattr(sdpa_attention, "repeat_kv")
    assert off(follow(runner, 4), runner.model) <= 1


@pytest.mark.parametrize("family", ["mistral", "gemma3", "qwen3"])
def test_without_a_cache_the_model_attends_as_ever(family: str) -> None:
    """Another thread may run it meanwhile."""
    model = tiny_model(family)
    ids = torch.tensor([PROMPT * 2])
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        with attending(model, IN_SPANS, attend_in_spans):
            assert torch.equal(model(input_ids=ids, use_cache=False).logits, expected)
    assert model.config._attn_implementation == "sdpa"
