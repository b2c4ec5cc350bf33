"""Texts of different lengths as one row without padding, computed by a model's own layers.

Positions begin anew with each text, and a text attends to itself alone; everything else in a layer
is of each token by itself. Where that is not so (states and convolutions that run along a row,
attention in chunks, biases by distance), the row gives other numbers than the texts do by
themselves: a model is packed only if a comparison finds the same. Several ranks can compute a row
together, a slice each, and exchange tokens for heads in attention (Ulysses, arXiv 2309.14509).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature
from itertools import accumulate
from math import lcm
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnwise.forward.attention import attending, recomputes_alike
from turnwise.forward.equality import FOREIGN_ERRORS, PROBE, distance, ordinary_tokens, tolerance

IN_A_ROW = "turnwise_in_a_row"
"""Name of the attention function under which transformers finds it."""
CHANGES = ("softcap", "position_bias", "s_aux")
"""Arguments by which transformers has scores changed in ways that are not known here."""
BLOCK = 128
"""Tokens that attend together in a window, at least."""


class Slicing(Protocol):
    """The ranks that compute a row together, seen by one; all is collective and differentiable."""

    @property
    def rank(self) -> int:
        """The slice of this process, from 0."""

    @property
    def count(self) -> int:
        """The number of slices, all of one length."""

    def to_heads(self, states: Tensor) -> Tensor:
        """Exchange [1, heads, slice, size] for [1, heads / count, tokens, size]."""

    def to_tokens(self, states: Tensor) -> Tensor:
        """Exchange [1, heads / count, tokens, size] for [1, heads, slice, size]."""

    def joined(self, values: Tensor, counts: list[int]) -> Tensor:
        """Exchange this slice's values [m] for those of all slices, [N]; `counts` has each one's
        number. All ranks differentiate the same loss of them."""


@dataclass(frozen=True)
class Row:
    """Texts one after another, of which this process computes a slice, or all."""

    ids: Tensor
    """int64[1, n], of the slice."""
    positions: Tensor
    """int64[1, n], each in its text."""
    lengths: tuple[int, ...]
    """Tokens of each text of the whole row."""
    asked: Tensor
    """int64[m], places wanted in the slice; one stands in for none: all use every weight."""
    counts: list[int]
    """How many are wanted in each slice."""
    slicing: Slicing | None

    @classmethod
    def of(cls, inputs: Tensor, selected: Tensor, slicing: Slicing | None = None) -> "Row":
        """Lay out texts int64[B, T] up to their last selected tokens, bool[B, T]."""
        places = torch.arange(inputs.shape[1], device=inputs.device)
        kept = kept_places(selected)
        ids, positions = inputs[kept], places.expand_as(kept)[kept]
        wanted, texts = selected[kept], [one for one in kept.sum(1).tolist() if one]
        slices, own = (1, 0) if slicing is None else (slicing.count, slicing.rank)
        missing = -len(ids) % slices
        # Slices have to be of one length for the ranks' exchange. What is missing is made a text,
        # which no other text sees and of which nothing is wanted.
        if missing:
            ids, wanted = (functional.pad(one, (0, missing)) for one in (ids, wanted))
            positions = torch.cat([positions, places.new_tensor(range(missing))])
            texts.append(missing)
        parts = wanted.chunk(slices)
        asked = parts[own].nonzero()[:, 0]
        return cls(
            ids.chunk(slices)[own][None],
            positions.chunk(slices)[own][None],
            tuple(texts),
            asked if len(asked) else asked.new_zeros(1),
            [int(part.sum()) for part in parts],
            slicing,
        )

    def own(self, targets: Tensor) -> Tensor:
        """The part of int64[N], one for each selected token, that belongs to the asked places."""
        if self.slicing is None:
            return targets
        part = torch.split(targets, self.counts)[self.slicing.rank]
        return part if len(part) else part.new_zeros(1)

    def joined(self, values: Tensor) -> Tensor:
        """The values of all selected tokens, [N], from those of the asked places, [m]."""
        if self.slicing is None:
            return values
        return self.slicing.joined(values[: self.counts[self.slicing.rank]], self.counts)

    def hidden(self, body: Any, autocast: bool) -> Tensor:
        """Hidden states [m, width] of the asked places by a body that attends by `sdpa`."""
        given = self.ids.new_zeros(1, 1, 1, 1)  # four dimensions: no mask is made in its place
        lower = torch.autocast(self.ids.device.type, torch.bfloat16, enabled=autocast)
        with lower, attending(body, IN_A_ROW, attend_in_a_row):
            hidden: Tensor = body(
                input_ids=self.ids,
                position_ids=self.positions,
                attention_mask=given,
                use_cache=False,
                # What a body does not know, it hands on to its attention.
                row=self,
            ).last_hidden_state
        return hidden[0, self.asked]


def kept_places(selected: Tensor) -> Tensor:
    """bool[B, T], the places of a row of texts: none after a text's last selected one."""
    places = torch.arange(selected.shape[1], device=selected.device)
    # The last selected place plus one, or 0 where none is selected.
    return places < ((places + 1) * selected).amax(1)[:, None]


def attend_in_a_row(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    row: Row,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend in each text of a row; query [1, heads, n, size] gives [1, n, heads, size]. Raises
    ValueError for what changes scores in another way."""
    del attention_mask, dropout  # there is none, as `prepare_for_training` says
    unknown = [name for name in CHANGES if options.get(name) is not None]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if unknown or not causal:
        raise ValueError(f"attention with {', '.join(unknown) or 'sight of later tokens'}")
    # Before the exchange: each rank gets 1 / count of the key heads, which may be few.
    key, value = (_for_each_slice(one, query.shape[1], row.slicing) for one in (key, value))
    if row.slicing is not None:
        query, key, value = map(row.slicing.to_heads, (query, key, value))
    mixed = _mixed(query, key, value, row.lengths, scaling, sliding_window)
    if row.slicing is not None:
        mixed = row.slicing.to_tokens(mixed)
    return mixed.transpose(1, 2), None


@torch.no_grad()
def reason_against(model: Any, body: Any, length: int, autocast: bool) -> str:
    """Say why a model cannot be packed; "" where a row of three texts, the longest of `length`
    tokens, gives hidden states near those of each text alone."""
    settings, device = model.config.get_text_config(), model.device
    if settings._attn_implementation != "sdpa":
        return f"it attends by {settings._attn_implementation}, and not by sdpa"
    if not recomputes_alike(model):
        return "its layers are computed again by another attention"
    # What runs on from one text into the next shows in the second and the third.
    lengths = [length, PROBE, length // 2]
    inputs = torch.zeros(len(lengths), length, dtype=torch.long, device=device)
    for number, (row, count) in enumerate(zip(inputs, lengths, strict=True)):
        row[:count] = torch.tensor(ordinary_tokens(model, count, number))
    selected = torch.arange(length, device=device) < torch.tensor(lengths, device=device)[:, None]
    lower = torch.autocast(device.type, torch.bfloat16, enabled=autocast)
    try:
        found = torch.split(Row.of(inputs, selected).hidden(body, autocast), lengths)
        with lower:
            own = [
                body(input_ids=text[None, :count], use_cache=False).last_hidden_state[0]
                for text, count in zip(inputs, lengths, strict=True)
            ]
    except FOREIGN_ERRORS as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    far = max(distance(one.float(), other.float()) for one, other in zip(found, own, strict=True))
    bound = tolerance(torch.bfloat16 if autocast else model.dtype)
    return "" if far <= bound else f"hidden states are off by {far:.2g}"


def _for_each_slice(states: Tensor, heads: int, slicing: Slicing | None) -> Tensor:
    """Keys or values, repeated until each slice gets as many."""
    if slicing is None:
        return states
    if heads % slicing.count:
        raise ValueError(f"{heads} heads of attention do not divide by {slicing.count}")
    return states.repeat_interleave(lcm(states.shape[1], slicing.count) // states.shape[1], 1)


def _mixed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """The attention of all texts, [1, heads, n, size]; on a CPU in float32, as in `attend`."""
    dtype, device = query.dtype, query.device.type
    # Under autocast rotations leave queries and keys in float32, and values are of the lower type.
    common = torch.float32 if device == "cpu" else value.dtype
    query, key, value = (one.to(common) for one in (query, key, value))
    if device == "cuda" and common != torch.float32:
        return _at_once(query, key, value, lengths, scaling, window)
    with torch.autocast(device, enabled=False):
        parts = [torch.split(one, list(lengths), 2) for one in (query, key, value)]
        mixed = [_attended(q, k, v, scaling, window) for q, k, v in zip(*parts, strict=True)]
    return torch.cat(mixed, 2).to(dtype)


def _attended(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """One text's attention, [1, heads, n, size], causal, in a window; by blocks if long."""
    length, heads = query.shape[2], query.shape[1]
    key, value = (one.repeat_interleave(heads // one.shape[1], 1) for one in (key, value))
    attention = partial(functional.scaled_dot_product_attention, scale=scaling)
    if window is None or length <= window:
        return attention(query, key, value, is_causal=True)
    places, mixed = torch.arange(length, device=query.device), []
    # A block sees itself and window - 1 tokens before it. With blocks as long as the window half of
    # the computed pairs count, and memory grows with the length alone.
    for block in torch.split(places, max(window, BLOCK)):
        end = int(block[-1]) + 1
        seen = places[max(0, int(block[0]) - window + 1) : end]
        apart = block[:, None] - seen
        mask = (apart >= 0) & (apart < window)
        part = slice(int(seen[0]), end)
        mixed.append(attention(query[:, :, block], key[:, :, part], value[:, :, part], mask))
    return torch.cat(mixed, 2)


def _at_once(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """The attention of all texts by one kernel of a GPU, in half precision alone."""
    from torch.nn.attention import varlen

    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=query.device)
    attention: Any = varlen.varlen_attn
    found: Tensor = attention(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        ends,
        ends,
        max(lengths),
        max(lengths),
        scale=scaling,
        # Tokens that are seen before and after the own one; -1 is no bound.
        window_size=(-1 if window is None else window - 1, 0),
        **_sharing(attention),
    )
    return found.transpose(0, 1)[None]


@cache
def _sharing(attention: Callable[..., Any]) -> dict[str, bool]:
    """Let query heads share those of keys, which torch 2.11's kernel does unasked."""
    return {"enable_gqa": True} if "enable_gqa" in signature(attention).parameters else {}
