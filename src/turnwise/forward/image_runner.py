"""The forward pass of a model that takes images: its decoder is given features in place of
placeholders."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.forward.attention import evaluating
from turnwise.forward.cache import CacheExtent, PoolCache
from turnwise.forward.cache_names import cache_name
from turnwise.forward.images import ImageInputs, ImageReader
from turnwise.forward.runner import Runner


class ImageRunner(Runner):
    """The forward pass of a model that takes images: its decoder and its output layer."""

    def __init__(
        self,
        model: Any,
        tokens: int,
        longest: int,
        reader: ImageReader,
        spans: bool = False,
        specialised: bool = True,
    ) -> None:
        self.reader = reader
        self._decoder, self._head = model.get_decoder(), model.get_output_embeddings()
        self._images: ImageInputs | None = None
        self._decoder_cache = str(cache_name(self._decoder))
        super().__init__(model, tokens, longest, spans, specialised)

    def forward_images(
        self,
        runs: Sequence[CacheExtent],
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        shown: ImageInputs | None,
    ) -> torch.Tensor:
        """Compute as `forward` does, with the images that some inputs stand for."""
        self._images = shown
        try:
            return self.forward(runs, ids, positions)
        finally:
            self._images = None

    def _general(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Any,
        cache: PoolCache,
        **arguments: Any,
    ) -> torch.Tensor:
        inputs: dict[str, Any] = {"position_ids": seen, self._decoder_cache: cache}
        if self._images is None:
            inputs["input_ids"] = ids
        else:
            inputs |= self.reader.arguments(self._decoder, ids, self._images)
        with evaluating(self._modules):
            output = self._decoder(
                attention_mask=masks if len(masks) > 1 else masks[self._masks.kinds[0]],
                use_cache=True,
                **inputs,
                **arguments,
            )
            logits: torch.Tensor = self._head(output.last_hidden_state[:, -1])
        return logits
