"""Images in the history of a session of the embedded engine.

Two images have the same placeholders, so in a session's history each image's tokens are a number
that its bytes give, below all ids: whatever compares histories compares images as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from turnwise.forward.images import Features, ImageReader
from turnwise.tokens import Image


@dataclass(frozen=True)
class SessionImages:
    """The images that a session has seen by now."""

    ids: NDArray[np.int64]
    """The prompt, with placeholders."""
    images: tuple[Image, ...]
    places: NDArray[np.int64]
    """int64[k], of the placeholders in the prompt."""
    axes: NDArray[np.int64] | None
    """int64[3, prompt], rotary positions where they have three axes."""

    @classmethod
    def of(
        cls, reader: ImageReader, ids: NDArray[np.int64], images: Sequence[Image]
    ) -> "SessionImages":
        """Make it from a prompt of int64[n]."""
        axes = reader.axes(ids, images) if reader.family.axes else None
        return cls(ids, tuple(images), reader.placeholders(ids, images), axes)

    @property
    def history(self) -> NDArray[np.int64]:
        """int64[n], with marks of the images in place of their tokens."""
        history = self.ids.copy()
        for image in self.images:
            digest = int.from_bytes(sha256(image.png).digest()[:8], "big")
            history[image.start : image.end] = -1 - (digest >> 1)  # 63 bits: an int64 below 0
        return history

    def restored(self, history: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids of the session's history as it is now."""
        return np.concatenate([self.ids, history[len(self.ids) :]])

    def positions(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[3, m], rotary positions of places of the history; words behind the prompt."""
        assert self.axes is not None
        end = len(self.ids)
        known = self.axes[:, np.minimum(places, end - 1)]
        return np.where(places < end, known, places - end + self._next)

    @cached_property
    def _next(self) -> int:
        assert self.axes is not None
        return int(self.axes.max()) + 1

    def features(self, reader: ImageReader, first: int, last: int) -> list[Features]:
        """Features of the placeholders from the place `first` on and before `last`."""
        found = []
        for image in self.images:
            if image.end <= first or image.start >= last:
                continue
            inside = (self.places >= image.start) & (self.places < image.end)
            own = self.places[inside]
            chosen = slice(*np.searchsorted(own, (first, last)).tolist())
            found.append(_part(reader.features(image.png), chosen))
        return found


def _part(features: Features, chosen: slice) -> Features:
    layers = tuple(layer[chosen] for layer in features.layers)
    return Features(features.embeddings[chosen], layers, features.grid)
