"""Experience replay with freshness: trajectories of earlier steps in the policy's updates again.

Each is drawn with a probability in proportion to (|R| + tiny)^exponent e^(-exponent age /
age_decay), R its reward and its age in steps, and its loss is weighted by (N P)^-importance over
the largest such weight. Its ratio is to the policy that sampled it, its advantage that of its own
group. Source: arXiv 2604.16918, whose age_decay is 500; there `importance` rises to 1.
"""

from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.objectives import USUAL, Inputs, clip
from turnwise.algorithms.parts import Requirement, part
from turnwise.ranges import NonNegative, Positive, Range, Share

if TYPE_CHECKING:
    from torch import Tensor

TINY = 1e-6
"""Added to rewards, so that those of 0 are drawn, too."""


@part("objective", "replayed_clip", needs=[Requirement.REPLAY], traits=USUAL)
def replayed_clip(
    inputs: Inputs,
    clip_low: NonNegative = 0.2,
    clip_high: NonNegative = 0.2,
    replayed: NonNegative = 0.5,
    capacity: Annotated[int, Range(1)] = 512,
    age_decay: Positive = 500.0,
    exponent: Share = 0.6,
    importance: Share = 0.4,
) -> "tuple[Tensor, Tensor]":
    """The objective `clip`, also of earlier trajectories: `replayed` times as many as are new."""
    return clip(inputs, clip_low, clip_high)


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
