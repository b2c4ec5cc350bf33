"""The layers of a small Llama or Qwen3 in an update, written out over a row without padding.

In a small model much of an update is not products but what lies between them. Here norms and
rotations are few operations, and the last layer computes past its keys and values only the tokens
that are asked for, which are a third of a trajectory with tools.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional

from turnwise.forward.attention import recomputed
from turnwise.forward.equality import is_rounding, longest_product, ordinary_tokens
from turnwise.forward.packing import Row
from turnwise.forward.small_llama import is_adapted, is_small_llama
from turnwise.forward.twin import shallow_twin_of

TEXTS = (2, 70)
"""Texts and tokens of each on which layers are compared."""
Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of each token of a row."""
_fitting: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Models that have been found to fit, or not."""


def is_written_out(base: Any, autocast: bool) -> bool:
    """Whether a model is computed here: small, in float32 on a CPU, with full attention and whole
    weights. That follows from its configuration, so that a resumed run computes as before."""
    if autocast or not is_small_llama(base) or base.device.type != "cpu":
        return False
    if recomputed(base) or any(map(is_adapted, base.modules())):
        return False
    if any(weights.dtype != torch.float32 for weights in base.parameters()):
        return False
    if any(getattr(layer.self_attn, "sliding_window", None) for layer in base.model.layers):
        return False
    if base not in _fitting:
        _fitting[base] = _agrees(base)
    return _fitting[base]


def hidden_of_row(base: Any, row: Row) -> Tensor:
    """The hidden states of the asked places, float32[m, width], after the last norm."""
    with torch.autocast("cpu", enabled=False):
        body = base.model
        hidden = body.embed_tokens(row.ids[0])
        cosines, sines = (part[0] for part in body.rotary_emb(hidden[None], row.positions))
        first, second = sines.chunk(2, -1)
        rotation = cosines, torch.cat([-first, second], -1)  # of halves that change places
        for layer in body.layers[:-1]:
            hidden = _layer(layer, hidden, rotation, row)
        hidden = _layer(body.layers[-1], hidden, rotation, row, row.asked)
        found: Tensor = _normed(hidden, body.norm)
    return found


def _layer(
    layer: Any, hidden: Tensor, rotation: Rotation, row: Row, asked: Tensor | None = None
) -> Tensor:
    """The tokens of a row after a layer, [n, width]; with `asked` those alone, [m, width]."""
    attention, normed = layer.self_attn, _normed(hidden, layer.input_layernorm)
    left, own, turns = hidden, normed, rotation
    lengths = list(row.lengths)
    counts = lengths
    masks: list[Any] = [None] * len(lengths)
    if asked is not None:
        left, own, turns = hidden[asked], normed[asked], (rotation[0][asked], rotation[1][asked])
        counts, masks = _seen(row)
    queries, keys, values = (
        product(states).view(len(states), -1, attention.head_dim)
        for product, states in (
            (attention.q_proj, own),
            (attention.k_proj, normed),
            (attention.v_proj, normed),
        )
    )
    queries = _turned(queries, getattr(attention, "q_norm", None), turns)
    keys = _turned(keys, getattr(attention, "k_norm", None), rotation)
    texts = zip(
        torch.split(queries, counts),
        torch.split(keys, lengths),
        torch.split(values, lengths),
        masks,
        strict=True,
    )
    mixed = [_attended(*text) for text in texts if len(text[0])]
    return _mixed(layer, left, torch.cat(mixed))


def _seen(row: Row) -> tuple[list[int], list[Any]]:
    """How many places of each text are asked, and which of its tokens each sees."""
    ends = torch.tensor(row.lengths).cumsum(0)
    # Asked places ascend: as many as lie before a text's end belong to it or to texts before.
    counts = torch.searchsorted(row.asked, ends).diff(prepend=ends.new_zeros(1)).tolist()
    places = torch.split(row.positions[0][row.asked], counts)
    pairs = zip(row.lengths, places, strict=True)
    return counts, [torch.arange(length) <= at[:, None] for length, at in pairs]


def _attended(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of one text, [queries, heads * size], of [tokens, heads, size] each."""
    count = len(queries)
    query, key, value = (part.transpose(0, 1)[None] for part in (queries, keys, values))
    mixed = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True
    )
    return mixed[0].transpose(0, 1).reshape(count, -1)


def _mixed(layer: Any, hidden: Tensor, attended: Tensor) -> Tensor:
    hidden = hidden + layer.self_attn.o_proj(attended)
    feed_forward, normed = layer.mlp, _normed(hidden, layer.post_attention_layernorm)
    inner = functional.silu(feed_forward.gate_proj(normed)) * feed_forward.up_proj(normed)
    found: Tensor = hidden + feed_forward.down_proj(inner)
    return found


def _normed(states: Tensor, norm: Any) -> Tensor:
    return functional.rms_norm(states, states.shape[-1:], norm.weight, norm.variance_epsilon)


def _turned(heads: Tensor, norm: Any, rotation: Rotation) -> Tensor:
    """Heads [n, heads, size], normed where the model norms them, turned to their positions."""
    heads = heads if norm is None else _normed(heads, norm)
    cosines, sines = (part[:, None] for part in rotation)
    return torch.addcmul(heads * cosines, heads.roll(heads.shape[-1] // 2, -1), sines)


@torch.inference_mode(False)
def _agrees(base: Any) -> bool:
    """Whether hidden states and gradients are, up to rounding, float64's, with drawn weights."""
    twin = shallow_twin_of(base)
    texts, tokens = TEXTS
    inputs = torch.tensor(ordinary_tokens(base, texts * tokens)).view(texts, tokens)
    # Gaps among the asked places, as tools leave them.
    selected = torch.arange(tokens).expand(texts, tokens) % 3 > 0
    row = Row.of(inputs, selected)
    found = _probed(twin, lambda: hidden_of_row(twin, row))
    # After the probe: `double` changes the twin in place.
    exact = twin.double()

    def last() -> Tensor:
        hidden: Tensor = exact.model(input_ids=inputs, use_cache=False).last_hidden_state
        return hidden[selected]

    def own() -> list[Tensor]:
        return _probed(exact, last)

    return is_rounding(found, own, exact.parameters(), torch.float32, longest_product(exact))


def _probed(model: Any, hidden: Callable[[], Tensor]) -> list[Tensor]:
    """Hidden states [m, width], and the gradient of some sum of them by each weight."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    exactly = torch.autocast("cpu", enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), exactly:
        found = hidden()
        if not found.requires_grad or not weights:
            return [found.detach()]
        # Unequal factors, so that errors of two tokens do not cancel out in the sum.
        total = (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum()
        gradients = torch.autograd.grad(total, weights, materialize_grads=True)
    return [found.detach(), *gradients]
