"""The layers of a small Llama or Qwen3 in training, written out with their gradients: matrix
products by PyTorch, all else by compiled kernels (`forward/kernels/training.c`).

In a small model most of an update is not products but the reading and writing of activations
between them. Here tokens stand one after another without padding, and the last layer computes past
its keys and values only what is asked for. A model is run in this way only if that gives what its
own layers give, and their gradients. Not here: embedding, last norm and output layer, which are the
model's own; which models are trained so (`weights.py`, `hidden.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from turnwise.forward.kernels.training import Heads, Layout, TrainingKernels
from turnwise.forward.small_llama.weights import LayerWeights, Products, layer_weights, rotation

PARTS = 4
"""Parts of the tokens, for gradients of weights in bfloat16."""


@dataclass(frozen=True)
class Rows:
    """Tokens of some texts, and what is asked about them."""

    ids: Tensor
    """int64[n]"""
    layout: Layout
    """Tokens behind its last one attend to nothing."""
    asked: Tensor
    """int64[m], ascending: the tokens whose last hidden states are wanted."""

    @classmethod
    def of(cls, inputs: Tensor, selected: Tensor) -> "Rows":
        """Lay out texts int64[B, T] with their selected tokens, bool[B, T]. Tokens after the last
        selected one of a text are left out."""
        places = torch.arange(inputs.shape[1])
        lengths = ((places + 1) * selected).amax(1)
        kept = places < lengths[:, None]
        lengths = lengths[lengths > 0]
        layout = Layout(
            trees=torch.arange(len(lengths) + 1),
            runs=torch.stack([lengths.cumsum(0) - lengths, lengths], 1),
            offsets=torch.zeros(len(lengths) + 1, dtype=torch.int64),
            spans=torch.empty(0, 2, dtype=torch.int64),
            positions=places.expand_as(kept)[kept],
        )
        return cls(inputs[kept], layout, selected[kept].nonzero()[:, 0])

    def padded(self) -> "Rows":
        """Add tokens that no other one sees, and that are asked for in part, so that batches come
        in few sizes. For each new size, products in bfloat16 take milliseconds more."""
        asks = _rounded(len(self.asked)) - len(self.asked)
        count = _rounded(len(self.ids) + asks)
        new = torch.arange(len(self.ids), len(self.ids) + asks)
        ids = functional.pad(self.ids, (0, count - len(self.ids)))
        return Rows(ids, self.layout, torch.cat([self.asked, new]))


def asked_hidden(model: Any, kernels: TrainingKernels, rows: Rows) -> Tensor:
    """A small model's hidden states of the asked tokens, float32[m, width], after its last norm."""
    with torch.autocast("cpu", enabled=False):
        return _asked_hidden(model, kernels, rows)


def _asked_hidden(model: Any, kernels: TrainingKernels, rows: Rows) -> Tensor:
    base, count = model.model, len(rows.asked)
    if kernels.dtype == torch.bfloat16:
        rows = rows.padded()
    turned = rotation(model, int(rows.layout.positions.max()) + 1)
    weights = [weight for layer in layer_weights(model) for weight in layer]
    hidden = base.embed_tokens(rows.ids)
    moving = any(part is not None and part.requires_grad for part in (hidden, *weights))
    gradient, epsilon = moving and torch.is_grad_enabled(), model.config.rms_norm_eps
    passage = _Passage(kernels, rows.layout, rows.asked, turned, epsilon, gradient)
    found = _Layers.apply(hidden, passage, *weights)  # type: ignore[no-untyped-call]
    last: Tensor = base.norm(found[:count])
    return last


def _rounded(count: int) -> int:
    """Round a count up to a multiple of an eighth to a sixteenth of it."""
    multiple = 1 << max(0, count.bit_length() - 4)
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class _Kept:
    """The tensors kept for a layer's gradient; n tokens, of which m go on after attention."""

    weights: LayerWeights
    products: Products
    first: tuple[Tensor, Tensor]
    """The layer's input, float32[n, width], and the same after the first norm."""
    packed: Tensor
    attended: tuple[Tensor, Tensor]
    """[m, heads * size], and what its scores are measured by."""
    second: tuple[Tensor, Tensor]
    """[m, width] each, as the first."""
    both: Tensor
    """[m, 2 * inner]"""


@dataclass(frozen=True)
class _Passage:
    """One pass through all layers."""

    kernels: TrainingKernels
    layout: Layout
    asked: Tensor
    rotation: tuple[Tensor, Tensor]
    epsilon: float
    gradient: bool
    """Whether there will be one."""

    def forward(self, hidden: Tensor, layers: Sequence[LayerWeights]) -> tuple[Tensor, list[_Kept]]:
        """Hidden states after all layers, float32[m, width], of those before, [n, width]."""
        kernels = self.kernels
        deltas: Tensor | None = None
        kept: list[_Kept] = []
        for weights in layers:
            products = weights.products(kernels.dtype)
            asked = self.asked if weights is layers[-1] else None
            first = kernels.add_and_normalize(hidden, deltas, weights.first_norm, self.epsilon)
            packed = torch.mm(first[1], products.packed.t())
            attended = kernels.attend(packed, self._heads(weights), self.layout, asked)
            deltas = torch.mm(attended[0], products.output.t())
            hidden = first[0] if asked is None else first[0][asked]
            second = kernels.add_and_normalize(hidden, deltas, weights.second_norm, self.epsilon)
            both = torch.mm(second[1], products.gate_up.t())
            deltas = torch.mm(kernels.gate(both), products.down.t())
            hidden = second[0]
            if self.gradient:
                kept.append(_Kept(weights, products, first, packed, attended, second, both))
        assert deltas is not None, "a model has layers"
        return hidden + deltas, kept

    def backward(self, of_hidden: Tensor, kept: list[_Kept]) -> tuple[Tensor, list[LayerWeights]]:
        """Gradients of the first hidden states and of all layers' weights; takes up `kept`."""
        kernels = self.kernels
        asked: Tensor | None = self.asked  # of the last layer, which is the first one here
        of_hidden = of_hidden.clone(memory_format=torch.contiguous_format)
        of_deltas = of_hidden.to(kernels.dtype)
        found: list[LayerWeights] = []
        while kept:
            layer = kept.pop()
            weights, products = layer.weights, layer.products
            of_gated = torch.mm(of_deltas, products.down)
            of_both, gated = kernels.gate_gradient(layer.both, of_gated)
            of_down = _of_weights(of_deltas, gated)
            of_gate_up = _of_weights(of_both, layer.second[1])
            of_second = torch.mm(of_both, products.gate_up)
            of_deltas, of_second_norm = kernels.normalize_gradient(
                of_second, layer.second[0], weights.second_norm, of_hidden, self.epsilon
            )
            of_output = _of_weights(of_deltas, layer.attended[0])
            of_attended = torch.mm(of_deltas, products.output)
            of_packed, of_head_norms = kernels.attend_gradient(
                layer.packed, self._heads(weights), self.layout, asked, layer.attended, of_attended
            )
            if asked is not None:
                of_hidden = torch.zeros_like(layer.first[0]).index_copy_(0, asked, of_hidden)
            of_weights = _of_weights(of_packed, layer.first[1])
            of_first = torch.mm(of_packed, products.packed)
            of_deltas, of_first_norm = kernels.normalize_gradient(
                of_first, layer.first[0], weights.first_norm, of_hidden, self.epsilon
            )
            sizes = [len(part) for part in (weights.queries, weights.keys, weights.values)]
            of_queries, of_keys, of_values = torch.split(of_weights, sizes)
            of_gate, of_up = of_gate_up.chunk(2)
            normed = weights.query_norm is not None
            found.append(
                LayerWeights(
                    first_norm=of_first_norm,
                    queries=of_queries,
                    keys=of_keys,
                    values=of_values,
                    query_norm=of_head_norms[0] if normed else None,
                    key_norm=of_head_norms[1] if normed else None,
                    output=of_output,
                    second_norm=of_second_norm,
                    gate=of_gate,
                    up=of_up,
                    down=of_down,
                )
            )
            asked = None
        return of_hidden, found[::-1]

    def _heads(self, weights: LayerWeights) -> Heads:
        return Heads(weights.query_norm, weights.key_norm, *self.rotation, self.epsilon)


class _Layers(torch.autograd.Function):
    """Hidden states float32[n, width], a passage and all layers' weights, one after another ->
    hidden states of the asked tokens, float32[m, width]."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, passage: _Passage, *weights: Tensor | None) -> Tensor:
        found, ctx.kept = passage.forward(hidden, list(_by_layer(weights)))
        ctx.passage = passage
        ctx.save_for_backward(*weights)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_found: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # raises if weights have changed since, and a second time
        if not ctx.kept:
            raise RuntimeError("what has been computed is let go in the first backward pass")
        with torch.autocast("cpu", enabled=False):
            of_hidden, of_weights = ctx.passage.backward(of_found, ctx.kept)
        return of_hidden, None, *(part for layer in of_weights for part in layer)


def _of_weights(of_outputs: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of a product's weights, float32[outputs, inputs], from [n, outputs] and [n,
    inputs]. In bfloat16 in a few parts, which are faster than one."""
    if inputs.dtype != torch.bfloat16 or len(inputs) % PARTS:
        return torch.mm(of_outputs.t(), inputs).float()
    left, right = (states.view(PARTS, -1, states.shape[1]) for states in (of_outputs, inputs))
    return torch.bmm(left.transpose(1, 2), right).sum(0, dtype=torch.float32)


def _by_layer(weights: Sequence[Any]) -> Iterator[LayerWeights]:
    count = len(LayerWeights._fields)
    return (LayerWeights(*weights[at : at + count]) for at in range(0, len(weights), count))
