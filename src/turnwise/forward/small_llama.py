"""The forward pass of Llama and Qwen3 shapes, written out for models that are small.

In a small model most of a decode step is not arithmetic but dispatch: some 80 operations a layer
where 16 do, of which three matrix products read the same input. Here those are packed into one, and
the last layer computes past its keys and values only what is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3ForCausalLM

from turnwise.forward.cache import FULL, SLIDING, CacheExtent, Masks, PoolCache, PoolLayer, Span
from turnwise.forward.equality import PROBE, is_rounding, longest_product, ordinary_tokens
from turnwise.forward.products import Product, product
from turnwise.forward.twin import shallow_twin_of

FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that do not change with the length of the text."""
LARGEST = 200_000_000
"""Parameters. Above it products dominate, and a second copy of the weights costs too much."""
DTYPES = (torch.float32, torch.bfloat16)
SHARING_ROWS, SHARED_PLACES = 8, 64
"""Fewer rows, or fewer places that they share, are no faster with one reading for all."""
ADAPTED = "peft.tuners.lora.layer"
"""The module whose `Linear` adds LoRA's adapters to a product."""


def is_small_llama(model: PreTrainedModel) -> bool:
    """Whether a model is small and has Llama's or Qwen3's parts alone, but for LoRA's adapters."""
    # Exact types: a subclass may compute something else under the same configuration.
    if type(model) not in (LlamaForCausalLM, Qwen3ForCausalLM) or model.dtype not in DTYPES:
        return False
    if model.num_parameters() > LARGEST or model.config.hidden_act != "silu":
        return False
    if model.model.rotary_emb.rope_type not in FIXED_ROTATIONS:
        return False
    if any(map(_is_changed, [model.model, *model.model.layers.modules()])):
        return False
    products = [model.lm_head, *(m for m in model.model.layers.modules() if hasattr(m, "weight"))]
    products = [module for module in products if module.weight.ndim == 2]
    linear = all(type(module) is nn.Linear or is_adapted(module) for module in products)
    return linear and all(module.bias is None for module in products)


def is_adapted(module: Any) -> bool:
    """Whether a module is a product with adapters of plain LoRA."""
    plain = type(module).__module__ == ADAPTED and type(module).__name__ == "Linear"
    return plain and len(module.active_adapters) == 1 and not module.lora_variant


def specialised(model: PreTrainedModel, longest: int, masks: Masks) -> "SmallLlama | None":
    """The written-out pass of a model, for histories of at most `longest`; None for another shape,
    or where, with weights of a fixed seed, it does not give what the model gives."""
    if not is_small_llama(model):
        return None
    twin = shallow_twin_of(model)
    ids = torch.tensor([ordinary_tokens(model, min(PROBE, longest))])
    found = _probed(SmallLlama(twin, longest, masks), ids.numpy(), len(twin.model.layers))
    # Only now: `double` changes the twin, whose own type the written-out pass had to see.
    exact, ids = twin.double(), ids.to(twin.device)

    def own() -> list[Tensor]:
        with torch.no_grad():
            logits = exact(input_ids=ids, use_cache=False).logits
        return [logits[0, -2:].log_softmax(-1)]

    if is_rounding([found], own, exact.parameters(), model.dtype, longest_product(exact)):
        return SmallLlama(model, longest, masks)
    return None


def _probed(written_out: "SmallLlama", ids: np.ndarray, layers: int) -> Tensor:
    """Log-probabilities of a prompt and of a token after it, float32[2, vocabulary]."""
    length = ids.shape[1]
    cache, runs = PoolCache(layers, length), [CacheExtent(0, length)]
    places = np.arange(length)[None]
    parts = (slice(0, -1), slice(-1, None))
    logits = [written_out.forward(cache, runs, ids[:, part], places[:, part]) for part in parts]
    return torch.cat(logits).log_softmax(-1)


@dataclass(frozen=True)
class Layer:
    """Copies of one layer's weights; matrices that multiply the same input are stacked."""

    kind: str
    """Kind of its attention: full or sliding."""
    first_norm: Tensor
    """[width], before attention."""
    qkv: Product
    """[(heads + 2 key heads) * size, width]"""
    head_norm: Tensor | None
    """float32[heads + key heads, size], of queries and keys; None without such norms."""
    output: Product
    """[width, heads * size]"""
    second_norm: Tensor
    """[width], before the feed-forward."""
    gate_up: Product
    """[2 * inner, width]"""
    down: Product
    """[width, inner]"""


class SmallLlama:
    """Next-token logits of a model of `is_small_llama`, for histories of at most `tokens`."""

    def __init__(self, model: Any, tokens: int, masks: Masks) -> None:
        settings = model.config
        self._model, self._dtype, self._masks = model, model.dtype, masks
        self._heads: int = settings.num_attention_heads
        self._key_heads: int = settings.num_key_value_heads
        self._size: int = model.model.layers[0].self_attn.head_dim
        self._epsilon: float = settings.rms_norm_eps
        self._smallest = torch.tensor(self._epsilon)
        self._rotation = _rotation(model, tokens)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights as they are now. Raises RuntimeError where their type has changed."""
        if self._model.dtype != self._dtype:
            raise RuntimeError(f"the model was {self._dtype}, and is {self._model.dtype} now")
        body = self._model.model
        # Copies throughout: an update changes weights in place while a thread samples.
        self._layers = [self._packed(layer) for layer in body.layers]
        self._embedding = body.embed_tokens.weight.detach().clone()
        self._last_norm = body.norm.weight.detach().clone()
        self._head = product(_weights(self._model.lm_head))

    @torch.inference_mode()
    def forward(
        self,
        cache: PoolCache,
        runs: Sequence[CacheExtent],
        ids: np.ndarray,
        positions: np.ndarray,
        shared: int = 0,
    ) -> Tensor:
        """See `Runner.forward`."""
        together = ids.shape == (len(runs), 1) and len(runs) >= SHARING_ROWS
        worth = together and shared >= SHARED_PLACES and self._embedding.device.type == "cpu"
        inputs = self._masks.inputs(cache, runs, ids, positions)
        return self._forward(*inputs, cache, shared if worth else 0).float()

    def _forward(
        self, ids: Tensor, seen: Tensor, masks: Mapping[str, Tensor], cache: PoolCache, shared: int
    ) -> Tensor:
        """`ids` and positions `seen` are int64[n, inputs]; `masks` [n, 1, inputs, length]."""
        inputs = ids.shape[1]
        places = seen.view(-1)
        cosines, sines = (part[places][:, None] for part in self._rotation)
        hidden = functional.embedding(ids.view(-1), self._embedding)
        for layer, pool in zip(self._layers, cache.layers, strict=True):
            queries, keys, values = self._project(layer, hidden, cosines, sines)
            pool.put(keys.transpose(0, 1), values.transpose(0, 1))
            mask = masks[layer.kind]
            if layer is self._layers[-1]:
                # Rows are aligned on the right, so each one's last input is its last token. Keys
                # and values of all inputs are in the cache by now, and nothing else of them is read
                # again.
                last = slice(inputs - 1, None, inputs)
                hidden, queries, mask = hidden[last], queries[last], mask[:, :, -1:]
            # Shared places are attended to without a mask, and a window may leave some out.
            attended = self._attend(queries, mask, pool, shared if layer.kind == FULL else 0)
            hidden = self._mix(layer, hidden, attended)
        return self._head(self._norm(hidden, self._last_norm)).contiguous()

    def _project(
        self, layer: Layer, hidden: Tensor, cosines: Tensor, sines: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [inputs, heads, size] each, from hidden [inputs, width]."""
        # In one piece: attention whose queries lie transposed copies all keys and values.
        states = layer.qkv(self._norm(hidden, layer.first_norm)).contiguous()
        every = states.view(len(hidden), -1, self._size)
        turned = self._heads + self._key_heads
        heads, values = every[:, :turned], every[:, turned:]
        if layer.head_norm is not None:
            # Queries and keys have weights of their own: one norm without any, then the weights.
            heads = self._norm(heads) * layer.head_norm
        heads = torch.addcmul(heads * cosines, heads.roll(self._size // 2, -1), sines)
        # Norms and rotations of heads are in float32; the cache is in the model's type.
        heads = heads.to(hidden.dtype)
        return heads[:, : self._heads], heads[:, self._heads :], values

    def _attend(self, queries: Tensor, mask: Tensor, pool: PoolLayer, shared: int) -> Tensor:
        """[inputs of all rows, heads * size]; query heads that share a key head are one query."""
        count, groups = len(mask), self._heads // self._key_heads
        length = len(queries) // count
        grouped = queries.view(count, length, -1, groups, self._size).permute(0, 2, 3, 1, 4)
        grouped = grouped.flatten(2, 3)
        # The mask of a single input is broadcast over the group; of several it is repeated, in the
        # order of the grouped queries.
        if groups > 1 and length > 1:
            mask = mask.repeat(1, 1, groups, 1)
        if shared:
            mixed = attend_sharing(grouped, mask, pool.views(), shared)
        else:
            parts = [
                functional.scaled_dot_product_attention(
                    grouped[span.rows], keys, values, attn_mask=mask[span.rows, ..., : span.length]
                )
                for span, keys, values in pool.views()
            ]
            mixed = parts[0] if len(parts) == 1 else torch.cat(parts)
        mixed = mixed.view(count, -1, groups, length, self._size).permute(0, 3, 1, 2, 4)
        return mixed.reshape(count * length, -1)

    def _mix(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """The rest of a layer: output projection and feed-forward, each added to its input."""
        hidden = hidden + layer.output(attended)
        gate, up = layer.gate_up(self._norm(hidden, layer.second_norm)).chunk(2, -1)
        return hidden + layer.down(functional.silu(gate).mul_(up))

    def _norm(self, states: Tensor, weights: Tensor | None = None) -> Tensor:
        if states.device.type != "cpu":
            return functional.rms_norm(states, states.shape[-1:], weights, self._epsilon)
        # What is one kernel on a GPU is nine operations here.
        length: Tensor = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32)
        squares = torch.addcmul(self._smallest, length, length, value=1 / states.shape[-1])
        normed = states * squares.rsqrt_()
        return (normed if weights is None else normed.mul_(weights)).to(states.dtype)

    def _packed(self, layer: Any) -> Layer:
        attention, feed_forward, norms = layer.self_attn, layer.mlp, None
        if hasattr(attention, "q_norm"):
            queries = attention.q_norm.weight.expand(self._heads, self._size)
            keys = attention.k_norm.weight.expand(self._key_heads, self._size)
            norms = torch.cat([queries, keys]).float()
        three = attention.q_proj, attention.k_proj, attention.v_proj
        both = feed_forward.gate_proj, feed_forward.up_proj
        return Layer(
            kind=FULL if getattr(attention, "sliding_window", None) is None else SLIDING,
            first_norm=layer.input_layernorm.weight.detach().clone(),
            qkv=product(torch.cat([_weights(one) for one in three])),
            head_norm=norms,
            output=product(_weights(attention.o_proj)),
            second_norm=layer.post_attention_layernorm.weight.detach().clone(),
            gate_up=product(torch.cat([_weights(one) for one in both])),
            down=product(_weights(feed_forward.down_proj)),
        )


def attend_sharing(
    queries: Tensor, mask: Tensor, views: Sequence[tuple[Span, Tensor, Tensor]], shared: int
) -> Tensor:
    """The attention of a token a row, [n, key heads, groups, size] as its queries, where the first
    `shared` places of all rows hold the same: one product of all queries with one row's there."""
    # PyTorch's own kernel, called by its inner name because only this gives each softmax's scale.
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    _, keys, values = views[0]
    of_all = queries.transpose(0, 1).flatten(1, 2)[None]
    begun, begun_scale = kernel(of_all, keys[:1, :, :shared], values[:1, :, :shared])
    count, key_heads, groups, size = queries.shape
    begun = begun.view(key_heads, count, groups, size).transpose(0, 1)
    begun_scale = begun_scale.view(key_heads, count, groups).transpose(0, 1)
    behind = []
    for span, keys, values in views:
        seen = mask[span.rows, ..., shared : span.length]
        later = keys[:, :, shared:], values[:, :, shared:]
        behind.append(kernel(queries[span.rows], *later, attn_mask=seen))
    own, own_scale = (torch.cat(parts) for parts in zip(*behind, strict=True))
    # Both are softmaxes over their places alone; their scales (logarithms of the sums) say how much
    # of one over all places falls to either.
    share = torch.sigmoid(own_scale - begun_scale)[..., None].to(own.dtype)
    return torch.lerp(begun, own, share)


def _is_changed(module: nn.Module) -> bool:
    """Whether a module runs code from outside transformers: another class, or a hook."""
    own = type(module).__module__.startswith(("torch.nn.modules.", "transformers."))
    own = own or is_adapted(module)
    hooks = module._forward_hooks or module._forward_pre_hooks
    backward = module._backward_hooks or module._backward_pre_hooks
    return not own or bool(hooks or backward) or "forward" in vars(module)


def _weights(module: Any) -> Tensor:
    """A copy of a product's weights, [outputs, inputs], with its adapters added."""
    own: Tensor = module.weight.detach()
    if not is_adapted(module):
        return own.clone()
    adapters: Tensor = module.get_delta_weight(module.active_adapters[0])
    return own + adapters.to(own.dtype)


@torch.no_grad()
def _rotation(model: Any, tokens: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32[tokens, size]; the sines of the first half are negative, so that a
    head is turned to head * cosines + (its halves exchanged) * sines."""
    places = torch.arange(tokens, device=model.device)[None]
    like = torch.zeros(1, dtype=torch.float32, device=model.device)
    cosines, sines = (part[0] for part in model.model.rotary_emb(like, places))
    first, second = sines.chunk(2, -1)
    return cosines.contiguous(), torch.cat([-first, second], -1)
