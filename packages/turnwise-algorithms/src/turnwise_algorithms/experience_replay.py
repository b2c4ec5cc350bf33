"""Experience replay with freshness: trajectories of earlier steps in the policy's updates again.

Each is drawn with a probability in proportion to (|R| + tiny)^exponent e^(-exponent age /
age_decay), R its reward and its age in steps, and its loss is weighted by (N P)^-importance over
the largest such weight. Its ratio is to the policy that sampled it, its advantage that of its own
group; KL term and token filter are of new ones alone. Source: arXiv 2604.16918, whose age_decay is
500; there `importance` rises to 1.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.ranges import NonNegative, Positive, Range, Share

TINY = 1e-6
"""Added to rewards, so that those of 0 are drawn, too."""


@part(
    "extension",
    "fresh_replay",
    needs=[Requirement.REPLAY],
    conditions=[Need.ONE_LEARNER, Need.POLICY_LOSS, Need.WHOLE_VOCABULARY],
)
def fresh_replay(
    replayed: NonNegative = 0.5,
    capacity: Annotated[int, Range(1)] = 512,
    age_decay: Positive = 500.0,
    exponent: Share = 0.6,
    importance: Share = 0.4,
) -> None:
    """Learn from earlier trajectories too, `replayed` times as many as are new."""


def freshness(
    priorities: NDArray[np.float64], ages: NDArray[np.float64], age_decay: float, exponent: float
) -> NDArray[np.float64]:
    """The probabilities to be drawn, float64[n], from priorities above 0 and ages in steps."""
    weights = (priorities * np.exp(-ages / age_decay)) ** exponent
    chances: NDArray[np.float64] = weights / weights.sum()
    return chances


def importances(chances: NDArray[np.float64], importance: float) -> NDArray[np.float64]:
    """The weights of the drawn, by the chance that each had: its power -importance, 1 at most."""
    # N falls out of (N P)^-importance, since the largest weight divides all.
    weights = chances**-importance
    scaled: NDArray[np.float64] = weights / weights.max()
    return scaled
