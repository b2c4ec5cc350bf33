"""Log-probabilities against the model's own logits, for each family and each way to compute."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GraniteConfig, GraniteForCausalLM

from tests.learning.building import load_model
from tests.rounding import assert_rounding, gradients
from turnwise.errors import NotSupportedError
from turnwise.forward.logprobs import check_supported, score_tokens, token_logprobs

pytestmark = pytest.mark.numbers

LENGTHS = (12, 7, 3)
PEFT_WARNS = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")
"""peft asks transformers by an old name."""


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


def test_padding_changes_nothing() -> None:
    model = load_model().eval()
    inputs, selected, targets, _ = batch()
    together, _ = token_logprobs(model, inputs, selected, targets, 1.0, autocast=False)
    counts, parts = selected.sum(1).tolist(), []
    for row, (length, own) in enumerate(zip(LENGTHS, targets.split(counts), strict=True)):
        alone, _ = token_logprobs(
            model, inputs[row : row + 1, :length], selected[row : row + 1, :length], own, 1.0, False
        )
        parts.append(alone)
    for found in (together, torch.cat(parts)):
        assert_rounding([found], model, lambda exact: by_logits(exact, 1.0)[:1])


def test_chunks_change_neither_values_nor_gradients() -> None:
    inputs, selected, targets, _ = batch()
    results = []
    for logits_per_chunk in (1 << 25, 100):
        model = load_model().eval()
        logprob, entropy = token_logprobs(
            model,
            inputs,
            selected,
            targets,
            1.0,
            False,
            entropy_gradient=True,
            logits_per_chunk=logits_per_chunk,
        )
        (logprob.sum() + 0.1 * entropy.sum()).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((logprob.detach(), entropy.detach(), gradient))

    def own(exact: Any) -> list[Tensor]:
        logprobs = exact(input_ids=inputs).logits[selected].log_softmax(-1)
        logprob = logprobs.gather(1, targets[:, None])[:, 0]
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        gradient = gradients(exact, logprob.sum() + 0.1 * entropy.sum())
        return [logprob, entropy, torch.cat([part.flatten() for part in gradient])]

    for found in results:
        assert_rounding(found, load_model().eval(), own)


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


@PEFT_WARNS
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


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2"])
def test_supported_models_pass_the_check(family: str) -> None:
    check_supported(load_model(family))
    check_supported(load_model(family, dtype=torch.bfloat16))


class Shifted(GraniteForCausalLM):
    """A model that does something to its logits that no configuration names."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        output = super().forward(*arguments, **options)
        output.logits = output.logits + torch.arange(output.logits.shape[-1]) % 3
        return output


def scaled(kind: Any = GraniteForCausalLM) -> Any:
    config = GraniteConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.2,
        logits_scaling=8.0,
    )
    return kind(config).eval()


def test_a_model_that_scales_its_logits_is_trained_with_them() -> None:
    model = scaled()
    check_supported(model)
    inputs, selected, targets, _ = batch()
    ours = token_logprobs(model, inputs, selected, targets, 0.6, autocast=False)
    assert_rounding(ours, model, lambda exact: by_logits(exact, 0.6))


def test_a_model_that_changes_its_logits_is_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"Shifted changes its logits .* nats"):
        check_supported(scaled(Shifted))
