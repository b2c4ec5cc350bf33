"""The table of algorithms: each is a row of choices, none a trainer of its own.

What can be chosen stands in `parts.py`. An algorithm is added by adding a row here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from turnwise.algorithms.parts import BYPASS, NO_PENALTY, NO_SHAPING, PARTS, Number, Part
from turnwise.errors import ConfigError, unknown_name

COEFFICIENTS = {
    "kl_coefficient": Number(0.0),
    "kl_reward_coefficient": Number(0.0),
    "kl_target": Number(0.0),
    "kl_horizon": Number(10_000.0, 1.0),
    "entropy_coefficient": Number(0.0),
    "observation_coefficient": Number(0.0),
    "demonstration_coefficient": Number(0.0),
    "success_coefficient": Number(0.0),
    "self_teacher_coefficient": Number(0.0),
}
"""Numbers that belong to no part."""


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
    trajectory_filter: str = "none"
    """Which of their trajectories are in the loss; the others stay in the baseline."""
    reward_shaping: str = "none"
    """What is taken off the task's reward before trajectories are compared."""
    token_filter: str = "none"
    """Which tokens are taken out, or held back."""
    correction: str = BYPASS
    """Weights for samples of another policy."""
    divergence: str = "k3"
    """How the divergence from the reference is estimated from sampled tokens."""
    rollout: str = "independent"
    """How the groups are played."""
    kl_coefficient: float = 0.0
    """Of the divergence from the reference model, added to the loss."""
    kl_reward_coefficient: float = 0.0
    """Of log(sampling policy / reference) of each token, subtracted from its reward: PPO's place
    for the KL term, where estimators carry it back to earlier tokens. One of the two is 0."""
    kl_target: float = 0.0
    """The mean divergence per token that the coefficient is adapted to keep, in nats; 0 leaves the
    coefficient as it is."""
    kl_horizon: float = 10_000.0
    """Trajectories in which an adapted coefficient can change by a fifth."""
    entropy_coefficient: float = 0.0
    """Of the entropy of the trained positions, subtracted from the loss."""
    observation_coefficient: float = 0.0
    """Of the cross-entropy of what tools and environment wrote: a term of its own beside the policy
    loss, which never trains it (ECHO)."""
    demonstration_coefficient: float = 0.0
    """Of the cross-entropy of the cold start's demonstrations (PTX; Kimi K2, arXiv 2507.20534)."""
    success_coefficient: float = 0.0
    """Of the cross-entropy of successful trajectories (VAPO, arXiv 2504.05118)."""
    self_teacher_coefficient: float = 0.0
    """Of the divergence from the policy's own average that was shown a success (SDPO, arXiv
    2601.20802)."""
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
        """What has to be there: see `Part.needs`."""
        return frozenset().union(*(self.part(choice).needs for choice in PARTS))

    @property
    def has_kl(self) -> bool:
        """Whether there is a KL term, in the loss or in the reward."""
        return bool(self.kl_coefficient or self.kl_reward_coefficient)

    @property
    def has_reference(self) -> bool:
        """Whether a reference model is needed."""
        return self.has_kl or "process_rewards" in self.needs

    @property
    def has_terms_without_advantage(self) -> bool:
        """Whether a token whose advantage is 0 can have a gradient, or a part in another's."""
        regularised = self.kl_coefficient or self.entropy_coefficient
        ranked = self.token_filter != "none"
        return bool(regularised) or ranked or self.objective == "squared"


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
            # The sampler's log-probabilities differ from the trainer's by more than the clips.
            correction="none",
            numbers={"clip_low": 3e-4, "clip_high": 4e-4},
        ),
        Algorithm(
            "simpletir",
            "arXiv 2509.02479",
            trajectory_filter="void_turns",
            numbers={"clip_high": 0.28, "dual_clip": 3.0},
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
        Algorithm("otb", "arXiv 2602.07078", estimator="otb", aggregation=PLAIN_SUM),
        Algorithm("gmpo", "arXiv 2507.20673", objective="gmpo"),
        Algorithm(
            "clip_cov", "arXiv 2505.22617", token_filter="clip_cov", aggregation="token_mean"
        ),
        Algorithm(
            "kl_cov",
            "arXiv 2505.22617",
            objective="policy_gradient",
            token_filter="kl_cov",
            aggregation="token_mean",
        ),
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
        Algorithm("echo", "GRPO and predicted observations", observation_coefficient=0.1),
        Algorithm(
            "distillation",
            "arXiv 2306.13649",
            estimator="distillation",
            objective="policy_gradient",
            aggregation="token_mean",
        ),
        Algorithm(
            "sdpo",
            "arXiv 2601.20802",
            estimator="none",
            aggregation="token_mean",
            self_teacher_coefficient=1.0,
        ),
        Algorithm("turn_rloo", "RLOO over turns", estimator="turn_rloo", aggregation=PLAIN_SUM),
        Algorithm("mt_grpo", "arXiv 2505.11821v1", estimator="mt_grpo"),
        Algorithm("gigpo", "arXiv 2505.10978", estimator="gigpo", divergence="k3"),
        Algorithm("igpo", "arXiv 2510.14967", estimator="information_gain"),
        Algorithm(
            "prime",
            "arXiv 2502.01456",
            estimator="process_rloo",
            whitening=True,
            aggregation="token_mean",
            group_filter="all_equal",
        ),
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
            success_coefficient=0.1,
            numbers={"clip_high": 0.28},
        ),
        Algorithm(
            "remax",
            "arXiv 2310.10505",
            estimator="remax",
            objective="policy_gradient",
            aggregation=PLAIN_SUM,
            rollout="greedy",
        ),
        Algorithm(
            "tree_grpo", "arXiv 2509.21240", estimator="tree_grpo", rollout="random_branches"
        ),
        Algorithm(
            "arpo",
            "arXiv 2507.19849",
            estimator="arpo",
            aggregation="token_mean",
            rollout="entropy_branches",
        ),
        Algorithm(
            "arpo_soft",
            "arXiv 2507.19849",
            estimator="arpo_soft",
            aggregation="token_mean",
            rollout="entropy_branches",
        ),
        Algorithm(
            "counterfactual",
            "re-rolls of every turn",
            estimator="counterfactual",
            aggregation=PLAIN_SUM,
            rollout="turn_replays",
        ),
        Algorithm("hca", "Harutyunyan 2019", estimator="hca", aggregation=PLAIN_SUM),
        Algorithm("hcapo", "arXiv 2603.08754", estimator="hcapo"),
    )
}
"""The KL term is off where the paper's agents do without it; DeepSeekMath's GRPO had 0.04."""


def make_algorithm(name: str, overrides: Mapping[str, Any]) -> Algorithm:
    """The named row with some of its choices and numbers replaced.

    A number of a part that is no longer chosen goes with it. Raises ConfigError for an unknown
    name, key or choice (naming the nearest known one), for a value of the wrong type or range, for
    a number that no chosen part takes, and for parts or KL terms that do not go together.
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
            chosen[key] = _number(key, value, COEFFICIENTS[key])
        else:
            given[key] = value
    algorithm = replace(row, **chosen)
    _check_rollout(algorithm)
    _check_penalties(algorithm)
    _check_kl(algorithm)
    _check_terms(algorithm, row, given)
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


def _check_rollout(algorithm: Algorithm) -> None:
    """What the rollout gives, and it costs, is what the estimator needs: no more and no less."""
    rollouts = PARTS["rollout"]
    given = algorithm.part("rollout").gives
    known = frozenset().union(*(part.gives for part in rollouts.values()))
    needed = algorithm.part("estimator").needs & known
    if given != needed:
        fitting = " or ".join(f"{key!r}" for key, part in rollouts.items() if part.gives == needed)
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator {algorithm.estimator!r} does not go with "
            f"rollout {algorithm.rollout!r}: choose rollout = {fitting}"
        )


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


def _check_penalties(algorithm: Algorithm) -> None:
    """Raise ConfigError for a penalty that the estimator can make no sense of."""
    name, estimator = algorithm.name, algorithm.estimator
    if algorithm.reward_shaping != "none" and estimator in NO_SHAPING:
        raise ConfigError(
            f"algorithm {name}: estimator {estimator} cannot have the penalties of reward_shaping "
            f"{algorithm.reward_shaping!r} among its rewards: choose another of the two"
        )
    if algorithm.kl_reward_coefficient and estimator in NO_PENALTY:
        raise ConfigError(
            f"algorithm {name}: estimator {estimator} cannot have a KL penalty among its "
            "rewards; use kl_coefficient in place of kl_reward_coefficient"
        )


def _check_kl(algorithm: Algorithm) -> None:
    """Raise ConfigError for KL settings that contradict each other or do nothing."""
    name = algorithm.name
    if algorithm.kl_coefficient and algorithm.kl_reward_coefficient:
        raise ConfigError(
            f"algorithm {name}: the KL term is in the loss (kl_coefficient) and in the reward "
            "(kl_reward_coefficient); set one of them to 0"
        )
    if algorithm.kl_target and not algorithm.has_kl:
        raise ConfigError(
            f"algorithm {name}: kl_target adapts a coefficient, but kl_coefficient and "
            "kl_reward_coefficient are 0; set one of them"
        )
    if not algorithm.kl_target and algorithm.kl_horizon != COEFFICIENTS["kl_horizon"].default:
        raise ConfigError(f"algorithm {name}: kl_horizon goes with kl_target, which is 0")


def _check_terms(algorithm: Algorithm, row: Algorithm, given: Mapping[str, Any]) -> None:
    """Raise ConfigError where there is no policy loss, and no term that trains by itself or a
    change of what is not there."""
    if algorithm.estimator != "none":
        return
    terms = ("observation_coefficient", "success_coefficient", "self_teacher_coefficient")
    if not any(getattr(algorithm, term) for term in terms):
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator none has no policy loss, so nothing would be "
            f"learned: set one of {', '.join(terms)}"
        )
    choices = ("objective", "ratio_level", "whitening")
    changed = [key for key in choices if getattr(algorithm, key) != getattr(row, key)]
    changed += [key for key in given if key in algorithm.part("objective").numbers]
    if changed:
        raise ConfigError(
            f"algorithm {algorithm.name}: {changed[0]} is of the policy loss, and estimator none "
            "has none: leave it out, or choose another estimator"
        )


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
