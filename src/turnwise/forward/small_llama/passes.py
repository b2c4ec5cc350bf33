"""The passes of a small model for sampling, and the choice of those that this machine has.

The fastest ones are taken that are seen to give what the model itself gives. Not here: what a pass
computes (`prefill.py`, `decode.py`, `tiles.py`); training (`training.py`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from turnwise.forward.cache import CacheExtent, PoolCache
from turnwise.forward.equality import PROBE, is_rounding, longest_product, ordinary_tokens
from turnwise.forward.kernels.decode import decode_kernels
from turnwise.forward.kernels.tiles import tile_kernels
from turnwise.forward.masks import Masks
from turnwise.forward.small_llama.decode import Decode
from turnwise.forward.small_llama.prefill import Prefill
from turnwise.forward.small_llama.tiles import Tiles
from turnwise.forward.small_llama.weights import is_small_llama, may_compile
from turnwise.forward.twin import twin_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Passes:
    """Next-token logits of a small model. `refresh` it when the weights changed."""

    masks: Masks
    prefill: Prefill
    decode: Decode | None = None
    """Compiled, for one token of each row."""
    tiles: Tiles | None = None
    """All layers in one call."""

    def refresh(self) -> None:
        """Copy the weights as they are now."""
        self.prefill.refresh()
        if self.tiles is not None:
            self.tiles.refresh()

    @torch.inference_mode()
    def forward(
        self, cache: PoolCache, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray
    ) -> Tensor:
        """Logits after the last input of each row, float32[n, vocabulary]; arguments as those of
        `Runner.forward`."""
        if self.tiles is not None and self.tiles.takes(positions):
            return self.tiles.forward(runs, ids, positions, cache).float()
        if self.decode is not None and positions.shape[1] == 1:
            return self.decode.forward(runs, ids[:, 0], positions[:, 0], cache).float()
        return self.prefill.forward(*self.masks.inputs(cache, runs, ids, positions), cache).float()


def fastest_passes(
    model: PreTrainedModel, longest: int, dtype: torch.dtype, masks: Masks
) -> Passes | None:
    """The fastest passes in `dtype`, for histories of at most `longest`, that give what the model
    gives; None for a model of another shape, or if none do. They are looked for with weights of a
    fixed seed, whatever the model's are now."""
    if not is_small_llama(model):
        return None
    twin = twin_of(model)
    ids = torch.tensor([ordinary_tokens(model, min(PROBE, longest))])
    ways = _ways(twin, longest, dtype, masks)
    found = [_probed(way, ids.numpy(), len(twin.model.layers)) for way in ways]
    exact, ids = twin.double(), ids.to(twin.device)

    def own() -> list[Tensor]:
        with torch.no_grad():
            logits = exact(input_ids=ids, use_cache=False).logits
        return [logits[0, -2:].log_softmax(-1)]

    terms = longest_product(exact)
    for place, (logprobs, way) in enumerate(zip(found, ways, strict=True)):
        if is_rounding([logprobs], own, exact.parameters(), dtype, terms):
            return _ways(model, longest, dtype, masks)[place]
        if way.decode is not None:
            logger.warning("compiled kernels do not give what the model gives: not used")
    return None


def _ways(model: PreTrainedModel, longest: int, dtype: torch.dtype, masks: Masks) -> list[Passes]:
    """The passes that this machine has, the fastest first."""
    prefill = Prefill(model, longest, dtype)
    found = [Passes(masks, prefill)]
    compiles = model.device.type == "cpu" and may_compile(model)
    kernels = decode_kernels(prefill.shape) if compiles else None
    if kernels is None:
        return found
    decode, settings = Decode(prefill, kernels, masks.window), model.config
    found.insert(0, Passes(masks, prefill, decode))
    in_tiles = tile_kernels(prefill.shape, settings.hidden_size, settings.intermediate_size)
    if in_tiles is not None:
        tiles = Tiles(model, prefill, in_tiles, masks.window)
        found.insert(0, Passes(masks, prefill, decode, tiles))
    return found


def _probed(way: Passes, ids: np.ndarray, layers: int) -> Tensor:
    """Log-probabilities after all tokens but one put in at once, and after that one, so of a prompt
    and of a token after it, float32[2, vocabulary]."""
    length = ids.shape[1]
    cache, runs = PoolCache(layers, length), [CacheExtent(0, length)]
    places = np.arange(length)[None]
    parts = (slice(0, -1), slice(-1, None))
    logits = [way.forward(cache, runs, ids[:, part], places[:, part]) for part in parts]
    return torch.cat(logits).log_softmax(-1)
