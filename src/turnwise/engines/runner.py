"""The model: forward passes over cache rows (token ids in, next-token logits out), its weights.

Not here: requests, sampling, and which session has which row.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.engines.cache import SlotCache
from turnwise.errors import ConfigError, unknown_name

FULL = "full_attention"
SLIDING = "sliding_attention"


class Runner:
    """The model, and a cache of `slots` rows of `tokens` tokens.

    Raises ConfigError for a model whose attention this engine does not know how to mask.
    """

    def __init__(self, model: PreTrainedModel, slots: int, tokens: int) -> None:
        self.model = model
        settings = model.config.get_text_config()
        self._kinds = _attention_kinds(model, settings)
        self._window: int = getattr(settings, "sliding_window", None) or 0
        self._modules = list(model.modules())
        self.cache = SlotCache(settings.num_hidden_layers, slots, tokens)

    @torch.inference_mode()
    def forward(
        self, rows: slice | Sequence[int], ids: np.ndarray, positions: np.ndarray
    ) -> torch.Tensor:
        """Logits after the last input of each row, float32[n, vocabulary].

        `ids` and `positions` are int64[n, inputs]; inputs are right-aligned, PADDING positions
        on their left. Keys and values of the inputs are kept in the cache.
        """
        device = self.model.device
        placement = self.cache.place(rows, positions, device)
        seen = torch.from_numpy(np.maximum(positions, 0)).to(device)
        with _evaluating(self._modules):
            output = self.model(
                input_ids=torch.from_numpy(ids).to(device),
                attention_mask=self._masks(seen, placement.length),
                position_ids=seen,
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits.float()

    def _masks(self, positions: torch.Tensor, length: int) -> Any:
        """Additive masks [n, 1, inputs, length]: one, or one for each kind of layer."""
        keys = torch.arange(length, device=positions.device)
        queries = positions[:, None, :, None]
        masks = {kind: self._mask(kind, queries, keys) for kind in self._kinds}
        return masks if len(masks) > 1 else masks[self._kinds[0]]

    def _mask(self, kind: str, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        hidden = keys > queries
        if kind == SLIDING:
            hidden |= keys <= queries - self._window
        dtype = self.model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=keys.device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)


def match_weights(
    model: PreTrainedModel, weights: Mapping[str, Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of the model's own tensor and its new values.

    Raises ConfigError for a name that the model's state dict lacks and for a wrong shape.
    """
    known = model.state_dict(keep_vars=True)
    changes = []
    for name, values in weights.items():
        if name not in known:
            raise unknown_name("weight", name, known)
        source = torch.as_tensor(values)
        if source.shape != known[name].shape:
            shapes = f"{list(source.shape)}, the model's is {list(known[name].shape)}"
            raise ConfigError(f"weight {name!r} has shape {shapes}")
        changes.append((known[name], source))
    return changes


def end_tokens(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text: those of the model's generation config and of the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(end for end in (*several, tokenizer.eos_token_id) if end is not None)


def _attention_kinds(model: PreTrainedModel, settings: Any) -> tuple[str, ...]:
    name = type(model).__name__
    implementation = model.config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise ConfigError(
            f"the embedded engine cannot run {name} with {implementation!r} attention: "
            "load it with attn_implementation='sdpa' or 'eager'"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise ConfigError(f"the embedded engine cannot run {name}: it takes no position_ids")
    types = getattr(settings, "layer_types", None)
    if types is None:
        types = [FULL if getattr(settings, "sliding_window", None) is None else SLIDING]
    unknown = sorted(set(types) - {FULL, SLIDING})
    if unknown:
        raise ConfigError(f"the embedded engine cannot run {name}: it has {unknown[0]} layers")
    return tuple(sorted(set(types)))


@contextmanager
def _evaluating(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Evaluation mode inside, each module's own mode back outside."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
