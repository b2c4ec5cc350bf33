"""Engine and learner against the model's own forward pass, before a run begins."""

import asyncio
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.architectures import BOUND, Ends
from benchmarks.tiny_models import tiny_config, tiny_model
from tests.forward.test_attention import switching
from turnwise.config.engine import ROUNDED_PARITY
from turnwise.engines.base import Completion
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import InfrastructureError, NotSupportedError, RunStoppedError
from turnwise.forward.attention import fix_rotations
from turnwise.forward.equality import InFloat32
from turnwise.forward.make_runner import make_runner
from turnwise.forward.own_caches import OwnRunner
from turnwise.learning.parity import check_gap, check_parity

pytestmark = pytest.mark.numbers

LIMIT = 100
KINDS = ["qwen3", "mistral", "gpt_neo", "qwen3_5_text", "mamba"]


class Liar(EmbeddedEngine):
    """Says of tokens that they were a little likelier."""

    async def generate(self, *arguments: Any, **options: Any) -> Completion:
        found = await super().generate(*arguments, **options)
        logprobs = [logprob + 0.01 for logprob in found.logprobs]
        return Completion(found.tokens, logprobs, found.stop_reason, found.version)


class FurtherOn(EmbeddedEngine):
    """Takes late tokens to be one position further on."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        right = self.runner._masks.inputs

        def wrong(*arguments: Any) -> Any:
            ids, positions, masks = right(*arguments)
            return ids, positions + (positions > 30), masks

        self.runner._masks.inputs = wrong


class SeesFurther(EmbeddedEngine):
    """Attends to one token more than the window has."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.runner._masks.window += 1


class Forgets(EmbeddedEngine):
    """Goes on with an empty cache as if nothing had been lost."""

    async def generate(self, *arguments: Any, **options: Any) -> Completion:
        with torch.inference_mode():
            for layer in self.runner.cache.layers:
                if layer.is_initialized:
                    layer.keys.zero_()
                    layer.values.zero_()
        return await super().generate(*arguments, **options)


def check(
    model: Any,
    kind: Any = EmbeddedEngine,
    bound: float = BOUND,
    rounding: dict[str, bool] | None = None,
    **options: Any,
) -> None:
    async def main() -> None:
        settings = {"max_sequences": 4, "max_tokens": LIMIT, "deterministic": True, **options}
        engine = kind(model, Ends(), **settings)
        try:
            await check_parity(engine, model, LIMIT, bound, **(rounding or {}))
        finally:
            await engine.stop()

    asyncio.run(main())


def check_in_bfloat16(model: Any, kind: Any = EmbeddedEngine, strict: bool = False) -> None:
    """With updates in bfloat16 beside weights in float32, or weights in bfloat16."""
    beside = model.dtype == torch.float32
    rounding = {"autocast": beside, "rounded": True, "strict": strict}
    check(model, kind, ROUNDED_PARITY, rounding)


def certain(model: Any, times: float = 8) -> Any:
    """A model whose logits are so many times as large."""
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach() * times)
    return model


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"deterministic": lockstep}) for kind in KINDS for lockstep in (True, False)),
        *(("qwen3", {"max_sequences": seats}) for seats in (1, 2, 3)),
        *((kind, {"max_sequences": 1}) for kind in ("mistral", "qwen3_5_text")),
    ],
    ids=str,
)
def test_right_models_pass(kind: str, options: dict[str, Any]) -> None:
    """With fewer seats than histories, sessions lose their cache to others; and lockstep waits for
    every open session, so one whose turns are over may not stay open."""
    check(tiny_model(kind), **options)


def test_an_engine_that_is_off_is_refused_and_by_how_much() -> None:
    with pytest.raises(
        NotSupportedError, match=r"from Qwen3ForCausalLM.* up to 64 tokens.* by 0\.01 nats"
    ):
        check(tiny_model("qwen3"), Liar)
    check(tiny_model("qwen3"), Liar, bound=0.02)


@pytest.mark.long
def test_a_learner_whose_rows_depend_on_others_is_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"Phi3ForCausalLM .*beside"):
        check(switching("longrope"))
    fixed = switching("longrope")
    fix_rotations(fixed, LIMIT)
    check(fixed)


def test_a_model_that_reads_later_tokens_is_refused() -> None:
    model = tiny_model("bert")
    with pytest.raises(NotSupportedError, match="BertLMHeadModel"):
        check(model)


@pytest.mark.long
def test_a_window_that_masks_know_nothing_of_is_found() -> None:
    """GPT-Neo's is in its attention; in the pool keys are not where it takes them to be."""
    assert isinstance(make_runner(tiny_model("gpt_neo"), 200, LIMIT), OwnRunner)
    assert not isinstance(make_runner(tiny_model("mistral"), 200, LIMIT), OwnRunner)


@pytest.mark.long
def test_a_choice_among_keys_of_equal_score_is_refused() -> None:
    """By how many tokens come later the model's own code takes one or the other. With a single
    head half of all scores are 0; with 32 none of the keys that matter is."""
    config = tiny_config("glm_moe_dsa")
    check(tiny_model("glm_moe_dsa"))
    config.index_n_heads = 1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).float().eval()
    with pytest.raises(NotSupportedError, match="GlmMoeDsaForCausalLM"):
        check(model)


def test_numbers_that_are_none_are_no_agreement() -> None:
    model = tiny_model("qwen3")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(InfrastructureError, match="not numbers"):
        check(model)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_of_a_certain_model_is_no_fault(dtype: torch.dtype) -> None:
    """It is beyond the bound, which a bound that was chosen is strict about."""
    model = certain(tiny_model("qwen3"), 16).to(dtype)
    check_in_bfloat16(model)
    with pytest.raises(NotSupportedError, match=r"bound is 0\.05; rounding .* It is rounding"):
        check_in_bfloat16(model, strict=True)


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    ("kind", "fault", "dtype"),
    [
        ("qwen3", FurtherOn, torch.float32),
        ("qwen3", Forgets, torch.float32),
        ("qwen3", Forgets, torch.bfloat16),
        ("mistral", FurtherOn, torch.bfloat16),
        ("mistral", SeesFurther, torch.bfloat16),
    ],
)
def test_a_fault_of_the_engine_is_found_in_bfloat16(
    kind: str, fault: Any, dtype: torch.dtype, times: float
) -> None:
    with pytest.raises(NotSupportedError, match="the engine does not sample from"):
        check_in_bfloat16(certain(tiny_model(kind), times).to(dtype), fault)


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 8])
def test_a_fault_of_the_learner_is_found_in_bfloat16(times: float) -> None:
    for model in (tiny_model("bert"), switching("longrope")):
        with pytest.raises(NotSupportedError, match=r"cannot be trained: .*beside it"):
            check_in_bfloat16(certain(model, times).bfloat16())


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_measured_without_a_second_copy_of_the_weights(kind: str) -> None:
    """In float32 for the while, a model in bfloat16 says what its float32 copy does."""
    model = tiny_model(kind).bfloat16()
    ids = torch.arange(3, 50)[None]
    with InFloat32(), torch.no_grad():
        found = model(input_ids=ids, use_cache=False).logits
    exact = model.float()(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


def test_a_gap_in_training_stops_the_run() -> None:
    check_gap(0.01, 0.01, 3)
    with pytest.raises(RunStoppedError, match=r"logprob_gap is 0\.02 in step 3"):
        check_gap(0.02, 0.01, 3)
    for bound in (0.01, float("inf")):  # NaN is beyond no bound; it is within none either
        with pytest.raises(RunStoppedError, match=r"logprob_gap is not a number in step 3"):
            check_gap(float("nan"), bound, 3)
