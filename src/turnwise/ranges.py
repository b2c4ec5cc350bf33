"""Ranges of numbers in annotations: `cap: Annotated[float, Range(0)] = 2.0`.

They stand in the signatures of the parts of an algorithm (`algorithms/parts.py`) and of
environments (`options.py`), whose registries check them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, GroupedMetadata, Le


@dataclass(frozen=True)
class Range(GroupedMetadata):
    """The range of a number: low <= value <= high."""

    low: float = -math.inf
    high: float = math.inf

    def __iter__(self) -> Iterator[Ge | Le]:
        """The bounds as pydantic reads them."""
        if self.low > -math.inf:
            yield Ge(self.low)
        if self.high < math.inf:
            yield Le(self.high)


NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(1e-6)]
Count = Annotated[int, Range(1)]
Seconds = Annotated[float, Range(0.001)]
