"""Promise 6: a row without padding gives what each of its texts gives alone, and its gradients."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.nn.attention import varlen
from transformers import (
    Llama4ForCausalLM,
    Llama4TextConfig,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
)

from tests.forward.models_for_tests import VOCABULARY, WINDOW, tiny_model
from tests.forward.test_routers import moe
from turnwise.forward import packing
from turnwise.forward.attention import recompute_layers
from turnwise.forward.hidden import hidden_states, last_hidden, why_not_packed
from turnwise.forward.packing import Row, _at_once, _attended, _mixed, kept_places

pytestmark = pytest.mark.numbers

LENGTHS = [5, 40, 1, 17, 2]
"""Of the texts of a batch; the longest is past a window, and most places are padding."""
FAMILIES = ["qwen3", "mistral", "gemma3"]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Texts, and the places asked for: the last of each, and some before it."""
    generator = torch.Generator().manual_seed(0)
    places, lengths = torch.arange(max(LENGTHS)), torch.tensor(LENGTHS)[:, None]
    inputs = torch.randint(VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    selected = (places < lengths) & ((places % 3 == 0) | (places == lengths - 1))
    return inputs, selected


def probed(model: PreTrainedModel, hidden: torch.Tensor) -> list[torch.Tensor]:
    """Hidden states, and gradients of some sum of them."""
    model.zero_grad()
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return [hidden.detach(), *(w.grad for w in model.parameters() if w.grad is not None)]


def model_of(family: str) -> PreTrainedModel:
    return moe(family) if "moe" in family else tiny_model(family)


@pytest.mark.parametrize("family", [*FAMILIES, "qwen3_moe"])
@pytest.mark.parametrize("recomputed", [False, True], ids=["kept", "recomputed"])
def test_rows_are_the_texts_alone(family: str, recomputed: bool) -> None:
    model, (inputs, selected) = model_of(family), batch()
    own = torch.cat(
        [
            last_hidden(model, text[None, :length], autocast=False)[0][chosen[:length]]
            for text, length, chosen in zip(inputs, LENGTHS, selected, strict=True)
        ]
    )
    expected = probed(model, own)
    if recomputed:
        recompute_layers(model)
        model.train()
    assert why_not_packed(model, autocast=False) == ""
    found = probed(model, hidden_states(model, inputs, selected, autocast=False))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, 1e-5, 1e-5 * float(other.abs().max()))


def test_padding_is_left_out_where_there_is_much(mistral: PreTrainedModel) -> None:
    """Then no layer sees more tokens than there are."""
    inputs, selected = batch()
    seen: list[int] = []
    hook = mistral.model.layers[0].mlp.register_forward_hook(
        lambda module, given, found: seen.append(given[0].shape[:-1].numel())
    )
    why_not_packed(mistral, autocast=False)
    seen.clear()
    hidden_states(mistral, inputs, selected, autocast=False)
    hidden_states(mistral, inputs[1:2], selected[1:2], autocast=False)
    hook.remove()
    assert seen == [int(kept_places(selected).sum()), max(LENGTHS)] == [sum(LENGTHS), max(LENGTHS)]


@pytest.mark.parametrize(("family", "in_a_row"), [("mistral", True), ("gemma2", False)])
def test_offloaded_activations_are_moved_and_change_nothing(family: str, in_a_row: bool) -> None:
    """What layers keep for the backward pass is packed by the offload, not by hooks outside it."""

    def kept(offload: bool) -> tuple[int, list[torch.Tensor]]:
        model = model_of(family)
        recompute_layers(model)
        model.train()
        model.offload_activations = offload
        assert (why_not_packed(model, autocast=False) == "") is in_a_row
        tensors: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            tensors.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden = hidden_states(model, *batch(), autocast=False)
        return len(tensors), probed(model, hidden)

    (most, known), (rest, found) = kept(False), kept(True)
    assert rest < most
    assert all(torch.equal(one, other) for one, other in zip(found, known, strict=True))


@pytest.fixture
def mistral() -> PreTrainedModel:
    return tiny_model("mistral")


def test_windows_are_of_each_text(mistral: PreTrainedModel) -> None:
    """A token that is out of a window's reach in every layer changes nothing."""
    inputs, selected = batch()
    row = Row.of(inputs, selected)
    before = row.hidden(mistral.model, autocast=False)
    inputs[1, 0] += 1
    after = Row.of(inputs, selected).hidden(mistral.model, autocast=False)
    same = (before == after).all(1)
    reach = 2 * (WINDOW - 1)
    kept = torch.cat([chosen[:length] for chosen, length in zip(selected, LENGTHS, strict=True)])
    places = torch.arange(len(kept))[kept]
    near = (places >= LENGTHS[0]) & (places <= LENGTHS[0] + reach)
    assert same[~near].all()
    assert not same[near].any()


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def test_what_a_row_changes_is_not_packed() -> None:
    """Attention in chunks of a row, states that go on from text to text, and recomputation under
    another attention function."""
    chunks = Llama4ForCausalLM(
        Llama4TextConfig(
            **SIZES,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            attention_chunk_size=16,
            num_local_experts=2,
            intermediate_size_mlp=32,
        )
    )
    states = MambaForCausalLM(MambaConfig(**SIZES))
    assert why_not_packed(chunks.eval(), autocast=False).startswith("hidden states are off by")
    assert why_not_packed(states.eval(), autocast=False)
    other = tiny_model("mistral")
    other.gradient_checkpointing_enable()
    assert "again by another attention" in why_not_packed(other, autocast=False)


def by_texts(
    query: Any,
    key: Any,
    value: Any,
    ends: Any,
    same: Any,
    longest: int,
    also: int,
    *,
    scale: Any = None,
    window_size: Any = (-1, -1),
) -> torch.Tensor:
    """What torch 2.11's `varlen_attn` computes on a GPU, by its arguments."""
    assert window_size == (-1, 0)
    assert longest == also == max(LENGTHS)
    parts = []
    for start, end in zip(ends.tolist(), same.tolist()[1:], strict=False):
        states = [one[start:end].transpose(0, 1) for one in (query, key, value)]
        attend = functional.scaled_dot_product_attention
        parts.append(attend(*states, is_causal=True, scale=scale, enable_gqa=True).transpose(0, 1))
    return torch.cat(parts)


def by_newer(*arguments: Any, enable_gqa: bool = False, **options: Any) -> torch.Tensor:
    """The same since key heads are shared for the asking alone."""
    assert enable_gqa
    return by_texts(*arguments, **options)


@pytest.mark.parametrize("kernel", [by_texts, by_newer])
def test_the_kernel_of_a_gpu_is_given_what_it_takes(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    query, key, value = (torch.randn(1, heads, sum(LENGTHS), 8) for heads in (4, 2, 2))
    pieces = zip(*(torch.split(one, LENGTHS, 2) for one in (query, key, value)), strict=True)
    alone = torch.cat([_attended(*states, None, None) for states in pieces], 2)
    torch.testing.assert_close(_at_once(query, key, value, LENGTHS, None, None), alone)


def test_the_kernel_of_a_gpu_is_given_one_type_under_autocast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where weights are float32, rotations have made queries and keys float32 again."""
    given = []

    def kernel(*states: Any, **_: Any) -> torch.Tensor:
        given.extend(one.dtype for one in states[:3])
        return states[0]

    monkeypatch.setattr(packing, "_at_once", kernel)
    with FakeTensorMode() as mode:
        shape = torch.empty(1, 4, sum(LENGTHS), 8, device="meta")
        rotated = FakeTensor(mode, shape, torch.device("cuda:0"))
        mixed = _mixed(rotated, rotated, rotated.bfloat16(), LENGTHS, None, None)
    assert given == [torch.bfloat16] * 3
    assert mixed.shape == rotated.shape
