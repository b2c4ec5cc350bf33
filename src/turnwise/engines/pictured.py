"""The forward pass of a model that takes pictures: which inputs stand for one, and their features.

Not here: how a session knows its pictures (`sight.py`), and what a model makes of one
(`models/vision.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.engines.batches import Batch
from turnwise.engines.cache import PADDING, PoolCache, Run
from turnwise.engines.runner import Runner, evaluating
from turnwise.models.vision import ImageReader, Shown, joined


def shown_in(batch: Batch, reader: ImageReader) -> tuple[Batch, Shown | None]:
    """The batch with ids of the model's vocabulary alone, and the placeholders among them; None
    where all inputs are words at positions of their own."""
    sights = [request.session.sight for request in batch.requests[: len(batch.runs)]]
    words = all(sight is None for sight in sights)
    if words or (batch.ids.min() >= 0 and not reader.family.axes):
        return batch, None
    ids, seen = batch.ids.copy(), np.maximum(batch.positions, 0)
    places, found = np.zeros(ids.shape, np.bool_), []
    axes = np.tile(seen, (3, 1, 1)) if reader.family.axes else None
    for row, sight in enumerate(sights):
        if sight is None:
            continue
        known = (batch.positions[row] != PADDING) & (seen[row] < len(sight.ids))
        ids[row, known] = sight.ids[seen[row, known]]
        if axes is not None:
            axes[:, row] = sight.positions(seen[row])
        if known.any():
            places[row, known] = np.isin(seen[row, known], sight.places)
            first, last = int(seen[row, known][0]), int(seen[row, known][-1])
            found += sight.features(reader, first, last + 1)
    return replace(batch, ids=ids), joined(places, found, axes)


class PicturedRunner(Runner):
    """The forward pass of a model that takes pictures: its decoder and its output layer."""

    def __init__(
        self,
        model: Any,
        tokens: int,
        longest: int,
        reader: ImageReader,
        autocast: bool = False,
        spans: bool = False,
        written: bool = True,
    ) -> None:
        self.reader = reader
        self._decoder, self._head = model.get_decoder(), model.get_output_embeddings()
        self._shown: Shown | None = None
        super().__init__(model, tokens, longest, autocast, spans, written)

    def forward_shown(
        self,
        runs: Sequence[Run],
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        shown: Shown | None,
    ) -> torch.Tensor:
        """Compute as `forward` does, with the pictures that some inputs stand for."""
        self._shown = shown
        try:
            return self.forward(runs, ids, positions)
        finally:
            self._shown = None

    def _general(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Any,
        cache: PoolCache,
        **arguments: Any,
    ) -> torch.Tensor:
        inputs: dict[str, Any] = {"position_ids": seen}
        if self._shown is None:
            inputs["input_ids"] = ids
        else:
            inputs |= self.reader.arguments(self._decoder, ids, self._shown)
        with evaluating(self._modules):
            output = self._decoder(
                attention_mask=masks if len(masks) > 1 else masks[self._kinds[0]],
                past_key_values=cache,
                use_cache=True,
                **inputs,
                **arguments,
            )
            logits: torch.Tensor = self._head(output.last_hidden_state[:, -1])
        return logits
