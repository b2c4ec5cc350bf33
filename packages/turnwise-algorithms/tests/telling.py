"""A scaffold that tells an outcome."""

from collections.abc import Sequence

from turnwise.tokens import Segment, Source
from turnwise.types import Observation


class Telling:
    """Two words and one that stands for the reward."""

    def extend(self, observation: Observation) -> Sequence[Segment]:
        reward = float(observation.content.rstrip(".").rpartition(" ")[2])
        return [Segment([3, 4], Source.TEMPLATE), Segment([int(10 + 4 * reward)], Source.USER)]
