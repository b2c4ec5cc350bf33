"""The table of algorithms: each is a row of choices, none a trainer of its own.

A part is added by writing a function and naming it in ESTIMATORS or GROUP_FILTERS (`advantages`),
AGGREGATIONS (`aggregation`) or LOG_RATIOS (`losses`); an algorithm by adding a row here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from turnwise.algorithms.advantages import ESTIMATORS, GROUP_FILTERS
from turnwise.algorithms.aggregation import AGGREGATIONS
from turnwise.errors import ConfigError, unknown_name

RATIO_LEVELS = ("token", "sequence")


@dataclass(frozen=True)
class Algorithm:
    """What the update maximises. Example: make_algorithm("grpo", {"clip_high": 0.28})."""

    name: str
    source: str
    """Paper."""
    estimator: str = "grpo"
    """Rewards of a group -> advantages: a name in `advantages.ESTIMATORS`."""
    ratio_level: str = "token"
    """`token`: one importance ratio per token. `sequence`: their geometric mean (GSPO)."""
    clip_low: float = 0.2
    """Ratios below 1 - clip_low are clipped; 1 and more is no lower bound."""
    clip_high: float = 0.2
    """Ratios above 1 + clip_high are clipped."""
    aggregation: str = "sequence_mean_token_mean"
    """Token losses -> one loss: a name in `aggregation.AGGREGATIONS`."""
    aggregation_constant: float | None = None
    """Tokens, for aggregation `constant` only: the most that one trajectory may sample."""
    group_filter: str = "none"
    """Which groups are in the batch at all: a name in `advantages.GROUP_FILTERS`."""
    kl_coefficient: float = 0.0
    """Of the k3 divergence from the reference model, added to the loss; 0 needs no reference."""
    entropy_coefficient: float = 0.0
    """Of the entropy of the trained positions, subtracted from the loss."""


ALGORITHMS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm("grpo", "arXiv 2402.03300"),
        Algorithm(
            "dr_grpo",
            "arXiv 2503.20783",
            estimator="dr_grpo",
            aggregation="constant",
            aggregation_constant=768.0,
        ),
        Algorithm("rloo", "arXiv 2402.14740", "rloo", aggregation="sequence_mean_token_sum"),
        Algorithm(
            "dapo",
            "arXiv 2503.14476",
            clip_high=0.28,
            aggregation="token_mean",
            group_filter="all_equal",
        ),
        Algorithm(
            "gspo", "arXiv 2507.18071", ratio_level="sequence", clip_low=3e-4, clip_high=4e-4
        ),
    )
}
"""The KL term is off in every row, as in agentic practice; DeepSeekMath's GRPO had 0.04."""

CHOICES = {
    "estimator": tuple(ESTIMATORS),
    "ratio_level": RATIO_LEVELS,
    "aggregation": tuple(AGGREGATIONS),
    "group_filter": tuple(GROUP_FILTERS),
}
NUMBERS = (
    "clip_low",
    "clip_high",
    "aggregation_constant",
    "kl_coefficient",
    "entropy_coefficient",
)
MAY_BE_ZERO = ("kl_coefficient", "entropy_coefficient")


def make_algorithm(name: str, overrides: Mapping[str, Any]) -> Algorithm:
    """The named row with some of its choices replaced.

    Raises ConfigError for an unknown name, key or choice (naming the nearest known one), for a
    value of the wrong type or range, and for an option that the other choices would ignore.
    """
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    checked: dict[str, Any] = {key: _check(key, value) for key, value in overrides.items()}
    row = ALGORITHMS[name]
    if checked.get("aggregation", row.aggregation) != "constant":
        row = replace(row, aggregation_constant=None)
    algorithm = replace(row, **checked)
    if (algorithm.aggregation == "constant") != (algorithm.aggregation_constant is not None):
        raise ConfigError(
            f"algorithm {name}: aggregation_constant goes with aggregation = 'constant', "
            f"and with no other; here aggregation is {algorithm.aggregation!r}"
        )
    return algorithm


def table() -> list[dict[str, Any]]:
    """Every algorithm's choices by field name, for people to compare."""
    return [
        {field.name: getattr(row, field.name) for field in fields(row)}
        for row in ALGORITHMS.values()
    ]


def _check(key: str, value: Any) -> str | float:
    if key in CHOICES:
        if not isinstance(value, str):
            raise ConfigError(f"algorithm.overrides.{key} must be a name, not {value!r}")
        if value not in CHOICES[key]:
            raise unknown_name(key, value, CHOICES[key])
        return value
    if key not in NUMBERS:
        raise unknown_name("algorithm option", key, (*CHOICES, *NUMBERS))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"algorithm.overrides.{key} must be a finite number, not {value!r}")
    if value < 0 or (value == 0 and key not in MAY_BE_ZERO):
        raise ConfigError(f"algorithm.overrides.{key} = {value} is too small")
    return float(value)
