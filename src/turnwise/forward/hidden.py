"""Hidden states of given tokens by a model's own layers, padded or as one row without padding."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from turnwise.errors import NotSupportedError
from turnwise.forward.attention import attention_in_float32
from turnwise.forward.equality import SHORT, past_boundaries
from turnwise.forward.images import reader_of
from turnwise.forward.packing import Row, kept_places, reason_against
from turnwise.forward.routing import Replay, replayed_experts
from turnwise.forward.small_llama_update import hidden_of_row, is_written_out
from turnwise.forward.twin import shallow_twin_of
from turnwise.tokens import Image

Images = Sequence[Sequence[Image]]
"""The images of each row of a batch, in order; without any row where there are no images."""
WORTH = 0.8
"""The share of places that are tokens below which a row without padding is faster."""

_packed: WeakKeyDictionary[Any, dict[bool, str]] = WeakKeyDictionary()
"""Reasons against packing a model, by autocast."""


def hidden_states(
    model: nn.Module,
    inputs: Tensor,
    selected: Tensor,
    autocast: bool,
    images: Images = (),
    replay: Replay | None = None,
) -> Tensor:
    """[N, width]: what the body says at the selected positions; arguments as `token_logprobs`."""
    base = base_model(model)
    # A row takes ids alone, without images; and no layer runs over nothing.
    words = not any(images) and bool(selected.any())
    if words and is_written_out(base, autocast):
        return hidden_of_row(base, Row.of(inputs, selected))
    arguments = inputs_of(base, decoder_of(base), inputs, images)
    kept = kept_places(selected)
    padded = kept.sum() < WORTH * kept.numel()
    if padded and words and may_pack(model, inputs, autocast):
        with replayed_experts(base, replay, kept):
            return hidden_in_a_row(model, Row.of(inputs, selected), autocast)
    with replayed_experts(base, replay):
        return last_hidden(model, inputs, autocast, **arguments)[selected]


def hidden_in_a_row(model: nn.Module, row: Row, autocast: bool) -> Tensor:
    """The hidden states [m, width] of a row's asked places by the model's own layers."""
    base = base_model(model)
    with offloaded(base):
        return row.hidden(decoder_of(base), autocast)


def last_hidden(model: nn.Module, inputs: Tensor, autocast: bool, **arguments: Any) -> Tensor:
    """Hidden states [B, T, width] of int64[B, T] inputs, or of `inputs_embeds` in `arguments`."""
    base = base_model(model)
    body = decoder_of(base)
    if "inputs_embeds" not in arguments:
        arguments["input_ids"] = inputs
    lower = torch.autocast(inputs.device.type, torch.bfloat16, enabled=autocast)
    exact = attention_in_float32(base) if autocast else nullcontext()
    with lower, exact, offloaded(base):
        hidden: Tensor = body(use_cache=False, **arguments).last_hidden_state
    return hidden


def offloaded(base: Any) -> AbstractContextManager[object]:
    """Keep what the backward pass needs on the processor, if `offload_activations` asks for it."""
    if not getattr(base, "offload_activations", False):
        return nullcontext()
    return torch.autograd.graph.save_on_cpu(pin_memory=base.device.type == "cuda")


def inputs_of(model: Any, decoder: Any, inputs: Tensor, images: Images) -> dict[str, Any]:
    """A decoder's arguments for inputs with images, if any. Raises NotSupportedError."""
    if not any(images):
        return {}
    reader = reader_of(model)
    if reader is None:
        raise NotSupportedError(f"{type(model).__name__} takes no images")
    return reader.arguments(decoder, inputs, reader.shown(inputs.cpu().numpy(), images))


def base_model(model: nn.Module) -> Any:
    """The transformers model itself: what peft wraps (its adapters are inside the layers)."""
    unwrap = getattr(model, "get_base_model", None)
    return model if unwrap is None else unwrap()


def decoder_of(base: Any) -> Any:
    """The part of a model before its output layer, which has the embeddings."""
    # Classes that name no decoder may give themselves: then it is the part with the embeddings.
    decoder = base.get_decoder()
    if decoder is not base or base.get_output_embeddings() is None:
        return decoder
    embedding = base.get_input_embeddings()
    parts = [part for part in base.children() if embedding in part.modules()]
    return parts[0] if len(parts) == 1 else base


def note_packing(model: nn.Module, autocast: bool) -> None:
    """Find out, while a model is whole, whether it is computed without padding: comparing takes all
    of its weights, and `may_pack` is asked when they are divided over ranks."""
    why_not_packed(model, autocast)


def may_pack(model: nn.Module, inputs: Tensor, autocast: bool) -> bool:
    """Whether texts int64[B, T] can be computed as one row without padding."""
    fits = inputs.shape[1] <= longest_text(base_model(model))
    return fits and not why_not_packed(model, autocast)


def longest_text(base: Any) -> int:
    """The number of tokens of the longest text that a model was loaded for."""
    positions = getattr(base.config.get_text_config(), "max_position_embeddings", SHORT)
    return int(getattr(base, "longest_text", positions))


def why_not_packed(model: nn.Module, autocast: bool) -> str:
    """Say why layers do not give of texts in a row what they give of each alone; "" if they do."""
    base = base_model(model)
    known = _packed.setdefault(base, {})
    if autocast not in known:
        twin = shallow_twin_of(base)
        length = past_boundaries(base, longest_text(base))
        known[autocast] = reason_against(twin, decoder_of(twin), length, autocast)
    return known[autocast]
