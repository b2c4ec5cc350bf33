"""The table of algorithms: each is a row of choices, none a trainer of its own.

What can be chosen stands in `parts.py`. An algorithm is added by adding a row here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from turnwise.algorithms.parts import BYPASS, PARTS, Number, Part
from turnwise.errors import ConfigError, unknown_name

COEFFICIENTS = ("kl_coefficient", "entropy_coefficient")


@dataclass(frozen=True)
class Algorithm:
    """What the update maximises. Example: make_algorithm("grpo", {"clip_high": 0.28})."""

    name: str
    source: str
    """Paper."""
    estimator: str = "grpo"
    """Rewards of a batch -> advantages."""
    whitening: bool = False
    """Whether advantages get mean 0 and standard deviation 1 over all sampled tokens of a batch."""
    objective: str = "clip"
    """Ratio and advantage -> loss of a token."""
    ratio_level: str = "token"
    aggregation: str = "sequence_mean_token_mean"
    """Token losses -> one loss."""
    group_filter: str = "none"
    """Which groups are in the batch at all."""
    correction: str = BYPASS
    """Weights for samples of another policy."""
    divergence: str = "k3"
    """How the divergence from the reference is estimated from sampled tokens."""
    kl_coefficient: float = 0.0
    """Of the divergence from the reference model, added to the loss; 0 needs no reference."""
    entropy_coefficient: float = 0.0
    """Of the entropy of the trained positions, subtracted from the loss."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Those of the chosen parts that are not at their defaults, by name."""

    def part(self, choice: str) -> Part:
        """What was chosen. Example: grpo.part("aggregation").description."""
        return PARTS[choice][getattr(self, choice)]

    def numbers_of(self, choice: str) -> dict[str, float]:
        """The numbers of one choice. Example: grpo.numbers_of("objective")["clip_high"] == 0.2."""
        return {
            key: self.numbers.get(key, number.default)
            for key, number in self.part(choice).numbers.items()
        }

    @property
    def needs(self) -> frozenset[str]:
        """Of `critic`, `turn_rewards` and `states`: what has to be there."""
        return frozenset().union(*(self.part(choice).needs for choice in PARTS))

    @property
    def has_terms_without_advantage(self) -> bool:
        """Whether a token whose advantage is 0 can still have a gradient."""
        regularised = self.kl_coefficient or self.entropy_coefficient
        return bool(regularised) or self.objective == "squared"


PLAIN_SUM = "sequence_mean_token_sum"

ALGORITHMS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm("grpo", "arXiv 2402.03300"),
        Algorithm(
            "dr_grpo",
            "arXiv 2503.20783",
            estimator="dr_grpo",
            aggregation="constant",
            numbers={"length": 768.0},
        ),
        Algorithm(
            "dapo",
            "arXiv 2503.14476",
            aggregation="token_mean",
            group_filter="all_equal",
            numbers={"clip_high": 0.28},
        ),
        Algorithm(
            "gspo",
            "arXiv 2507.18071",
            ratio_level="sequence",
            numbers={"clip_low": 3e-4, "clip_high": 4e-4},
        ),
        Algorithm("rloo", "arXiv 2402.14740", estimator="rloo", aggregation=PLAIN_SUM),
        Algorithm(
            "reinforce",
            "Williams 1992",
            estimator="reinforce_baseline",
            objective="policy_gradient",
            aggregation=PLAIN_SUM,
        ),
        Algorithm(
            "reinforce_pp",
            "arXiv 2501.03262",
            estimator="returns",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm(
            "reinforce_pp_baseline",
            "arXiv 2501.03262",
            estimator="returns_baseline",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm("cispo", "arXiv 2506.13585", objective="cispo", aggregation="token_mean"),
        Algorithm("sapo", "arXiv 2511.20347", objective="sapo"),
        Algorithm("dppo", "arXiv 2602.04879", objective="dppo_tv", aggregation="token_mean"),
        Algorithm("gdpo", "arXiv 2601.05242", estimator="gdpo", whitening=True),
        Algorithm("max_rl", "arXiv 2602.02710", estimator="max_rl", aggregation="token_mean"),
        Algorithm("pass_at_k", "arXiv 2508.10751", estimator="pass_at_k"),
        Algorithm("opo", "arXiv 2505.23585", estimator="opo", aggregation=PLAIN_SUM),
        Algorithm("kimi_k2", "arXiv 2507.20534", estimator="dr_grpo", objective="squared"),
        Algorithm(
            "starpo",
            "arXiv 2504.20073",
            divergence="k1",
            kl_coefficient=0.001,
            entropy_coefficient=0.001,
        ),
        Algorithm(
            "starpo_s",
            "arXiv 2504.20073",
            group_filter="top_spread",
            entropy_coefficient=0.001,
            numbers={"clip_high": 0.28},
        ),
        Algorithm("turn_rloo", "RLOO over turns", estimator="turn_rloo", aggregation=PLAIN_SUM),
        Algorithm("mt_grpo", "arXiv 2505.11821v1", estimator="mt_grpo"),
        Algorithm("gigpo", "arXiv 2505.10978", estimator="gigpo", divergence="k3"),
        Algorithm("igpo", "arXiv 2510.14967", estimator="information_gain"),
        Algorithm(
            "ppo",
            "arXiv 1707.06347",
            estimator="token_gae",
            whitening=True,
            aggregation="token_mean",
            numbers={"dual_clip": 3.0},
        ),
        Algorithm(
            "turn_ppo",
            "arXiv 2512.17008",
            estimator="turn_gae",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm(
            "bilevel_ppo",
            "arXiv 2510.16907",
            estimator="bilevel_gae",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm(
            "vapo",
            "arXiv 2504.05118",
            estimator="length_adaptive_gae",
            aggregation="token_mean",
            numbers={"clip_high": 0.28},
        ),
    )
}
"""The KL term is off where the paper's agents do without it; DeepSeekMath's GRPO had 0.04."""


def make_algorithm(name: str, overrides: Mapping[str, Any]) -> Algorithm:
    """The named row with some of its choices and numbers replaced.

    A number of a part that is no longer chosen goes with it. Raises ConfigError for an unknown
    name, key or choice (naming the nearest known one), for a value of the wrong type or range, and
    for a number that no chosen part takes.
    """
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    row = ALGORITHMS[name]
    chosen: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for key, value in overrides.items():
        if key in PARTS:
            chosen[key] = _choice(key, value)
        elif key == "whitening":
            chosen[key] = _flag(key, value)
        elif key in COEFFICIENTS:
            chosen[key] = _number(key, value, Number(0.0))
        else:
            given[key] = value
    algorithm = replace(row, **chosen)
    taken = {
        key: number for choice in PARTS for key, number in algorithm.part(choice).numbers.items()
    }
    numbers = {key: value for key, value in row.numbers.items() if key in taken}
    for key, value in given.items():
        if key not in taken:
            raise _not_taken(name, algorithm, key, taken)
        numbers[key] = _number(key, value, taken[key])
    return replace(algorithm, numbers=numbers)


def describe(name: str) -> dict[str, Any]:
    """What an algorithm is made of: for each choice the part, what it does, and its numbers, None
    for a bound that there is not.

    Raises ConfigError for an unknown name.
    """
    algorithm = make_algorithm(name, {})
    parts = {
        choice: {
            "part": getattr(algorithm, choice),
            "description": algorithm.part(choice).description,
            "numbers": {
                key: value if math.isfinite(value) else None
                for key, value in algorithm.numbers_of(choice).items()
            },
        }
        for choice in PARTS
    }
    flags = {key: getattr(algorithm, key) for key in ("whitening", *COEFFICIENTS)}
    return {"name": name, "source": algorithm.source, **flags, "parts": parts} | {
        "needs": sorted(algorithm.needs)
    }


def table() -> list[dict[str, Any]]:
    """Every algorithm's choices by field name, for people to compare."""
    return [
        {entry.name: getattr(row, entry.name) for entry in fields(row)}
        | {"needs": sorted(row.needs)}
        for row in ALGORITHMS.values()
    ]


def _not_taken(
    name: str, algorithm: Algorithm, key: str, taken: Mapping[str, Number]
) -> ConfigError:
    """A number of another part, or one that there is not at all."""
    for choice, options in PARTS.items():
        for option, part in options.items():
            if key in part.numbers:
                return ConfigError(
                    f"algorithm {name}: {key} goes with {choice} = {option!r}, "
                    f"but {choice} is {getattr(algorithm, choice)!r}"
                )
    return unknown_name("algorithm option", key, (*PARTS, "whitening", *COEFFICIENTS, *taken))


def _choice(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"algorithm.overrides.{key} must be a name, not {value!r}")
    if value not in PARTS[key]:
        raise unknown_name(key, value, PARTS[key])
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"algorithm.overrides.{key} must be true or false, not {value!r}")
    return value


def _number(key: str, value: Any, number: Number) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ConfigError(f"algorithm.overrides.{key} must be {number}, not {value!r}")
    if not number.accepts(value):
        raise ConfigError(f"algorithm.overrides.{key} must be {number}, not {value!r}")
    return float(value)
