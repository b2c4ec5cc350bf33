"""Log-probabilities against the model's own logits, for each family and each way to compute."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GraniteConfig, GraniteForCausalLM

from tests.forward.models_for_tests import random_model
from tests.learning.building import load_model
from tests.rounding import assert_rounding
from turnwise.errors import NotSupportedError
from turnwise.forward.logprobs import check_supported, score_tokens, token_logprobs

pytestmark = pytest.mark.numbers

LENGTHS = (12, 7, 3)


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Padded inputs, selected positions, their targets, and the attention mask."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50, (len(LENGTHS), max(LENGTHS) + 1), generator=generator)
    real = torch.arange(max(LENGTHS))[None, :] < torch.tensor(LENGTHS)[:, None]
    selected = (torch.rand(real.shape, generator=generator) < 0.6) & real
    inputs = torch.where(real, ids[:, :-1], 0)
    return inputs, selected, ids[:, 1:][selected], real.long()


def by_logits(model: nn.Module, temperature: float) -> tuple[Tensor, Tensor]:
    """From full float64 logits, with the padding masked the ordinary way."""
    inputs, selected, targets, attention = batch()
    with torch.no_grad():
        logits = model(input_ids=inputs, attention_mask=attention).logits.double()
    logprobs = torch.log_softmax(logits / temperature, -1)[selected]
    return logprobs.gather(1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_matches_the_models_own_logits(family: str, temperature: float) -> None:
    """Without an attention mask, on right-padded rows; Gemma bounds its logits."""
    model = load_model(family).eval()
    inputs, selected, targets, _ = batch()
    ours = token_logprobs(model, inputs, selected, targets, temperature, autocast=False)
    assert all(mine.dtype == torch.float32 for mine in ours)
    assert_rounding(ours, model, lambda exact: by_logits(exact, temperature))


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    size = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        output = function(*arguments, **(options or {}))
        made = output if isinstance(output, tuple | list) else [output]
        self.size = max([self.size, *(one.numel() for one in made if isinstance(one, Tensor))])
        return output


@pytest.mark.long
@pytest.mark.parametrize("vocabulary", [500, 30_000])
def test_memory_does_not_grow_with_the_vocabulary(vocabulary: int) -> None:
    """No operation, forward or backward, makes more logits than a chunk has."""
    chunk, width, positions = 60_000, 2, 600
    head = nn.Linear(width, vocabulary, bias=False)
    model = nn.Module()
    model.get_output_embeddings = lambda: head
    model.config = GraniteConfig()
    hidden = torch.randn(positions, width, requires_grad=True)
    targets = torch.arange(positions) % vocabulary
    with Largest() as largest:
        logprobs, _ = score_tokens(model, hidden, targets, 1.0, logits_per_chunk=chunk)
        logprobs.sum().backward()
    assert largest.size <= chunk
    assert positions * vocabulary > 4 * chunk


def test_entropy_has_a_gradient_only_on_request() -> None:
    inputs, selected, targets, _ = batch()
    model = load_model()
    for wanted in (True, False):
        _, entropy = token_logprobs(
            model, inputs, selected, targets, 1.0, False, entropy_gradient=wanted
        )
        assert entropy.requires_grad is wanted


def test_autocast_is_near_and_leaves_the_output_layer_exact() -> None:
    model = load_model().eval()
    inputs, selected, targets, _ = batch()
    exact, _ = token_logprobs(model, inputs, selected, targets, 1.0, autocast=False)
    rounded, _ = token_logprobs(model, inputs, selected, targets, 1.0, autocast=True)
    assert rounded.dtype == torch.float32
    assert 0 < (exact - rounded).abs().max() < 0.2


def test_a_model_wrapped_by_peft_uses_its_adapters() -> None:
    model = get_peft_model(
        load_model(), LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    ).eval()
    inputs, selected, targets, _ = batch()
    ours, _ = token_logprobs(model, inputs, selected, targets, 1.0, autocast=False)
    assert_rounding([ours], model, lambda exact: by_logits(exact, 1.0)[:1])
    with model.disable_adapter():
        without, _ = token_logprobs(model, inputs, selected, targets, 1.0, autocast=False)
    assert (ours - without).abs().max() > 1e-3


class Shifted(GraniteForCausalLM):
    """A model that does something to its logits that no configuration names."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        output = super().forward(*arguments, **options)
        output.logits = output.logits + torch.arange(output.logits.shape[-1]) % 3
        return output


def scaled(kind: Any = GraniteForCausalLM) -> Any:
    return random_model((GraniteConfig, kind, {"logits_scaling": 8.0}), 0, hidden_size=64)


def test_a_model_that_scales_its_logits_is_trained_with_them() -> None:
    model = scaled()
    check_supported(model)
    inputs, selected, targets, _ = batch()
    ours = token_logprobs(model, inputs, selected, targets, 0.6, autocast=False)
    assert_rounding(ours, model, lambda exact: by_logits(exact, 0.6))


def test_a_model_that_changes_its_logits_is_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"Shifted changes its logits .* nats"):
        check_supported(scaled(Shifted))
