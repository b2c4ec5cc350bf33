"""What algorithms are made of, by name: what each part does, which numbers it takes, what it needs.

One table for each choice. The functions stand beside their kind: ESTIMATORS in `advantages.py`,
OBJECTIVES in `objectives.py`, LOG_RATIOS in `losses.py`, AGGREGATIONS in `aggregation.py`,
GROUP_FILTERS and TRAJECTORY_FILTERS in `filters.py`, REWARD_SHAPINGS in `shaping.py`,
TOKEN_FILTERS in `token_filters.py`, DIVERGENCES in `kl.py`, CORRECTIONS in `corrections.py`;
ROLLOUTS in `rollout/collect.py`. A new part is a function there and a line here. This module loads
no torch, so that it can be printed at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

BYPASS = "bypass"
PLAIN_SUM = "sequence_mean_token_sum"


@dataclass(frozen=True)
class Number:
    """A number that a part takes: low <= value <= high, and its default."""

    default: float
    low: float = 0.0
    high: float = math.inf
    whole: bool = False

    def accepts(self, value: float) -> bool:
        """Whether the value is in the range, and whole if it has to be."""
        return self.low <= value <= self.high and (not self.whole or value == int(value))

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.high == math.inf:
            return f"{kind} of {self.low:g} or more"
        return f"{kind} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Weights:
    """A table that a part takes: names, each with its weight; a recipe has to give it."""

    default: ClassVar[Mapping[str, float]] = {}

    def accepts(self, value: Any) -> bool:
        """Whether the value is a table of numbers, all finite and none of them 0."""
        return isinstance(value, Mapping) and all(
            isinstance(weight, int | float)
            and not isinstance(weight, bool)
            and math.isfinite(weight)
            and weight != 0
            for weight in value.values()
        )

    def __str__(self) -> str:
        return "a table of names and weights other than 0, as in {exact_match = 1.0}"


Setting = Number | Weights


@dataclass(frozen=True)
class Part:
    """Example: Part("leave-one-out over turns", {"discount": Number(1.0, 0, 1)})."""

    description: str
    """What it does in a few words, and the paper."""
    numbers: Mapping[str, Setting] = field(default_factory=dict)
    """Passed to the function by name."""
    needs: frozenset[str] = frozenset()
    """Of `critic`, `turn_rewards`, `process_rewards`, `states`, `teacher`, `hindsight`,
    `information_gain`, `score_norms`, `restorable` (an environment whose episodes can go on from a
    snapshot), and what a rollout `gives`: what has to be there."""
    gives: frozenset[str] = frozenset()
    """Of a rollout: what the estimator gets by it. One of them has to need it."""


CRITIC = frozenset({"critic"})
TURN_REWARDS = frozenset({"turn_rewards"})
PROCESS_REWARDS = frozenset({"process_rewards"})
STATES = frozenset({"states"})
TEACHER = frozenset({"teacher"})
GREEDY = frozenset({"greedy"})
BRANCHES = frozenset({"branches"})
TURN_VALUES = frozenset({"turn_values"})
HINDSIGHT = frozenset({"hindsight"})
INFORMATION_GAIN = frozenset({"information_gain"})
SCORE_NORMS = frozenset({"score_norms"})
RESTORABLE = frozenset({"restorable"})
_SHARE = Number(1.0, 0.0, 1.0)
_DISCOUNT = {"discount": _SHARE}
_GAE = {"discount": _SHARE, "decay": _SHARE}
_CLIP = {"clip_low": Number(0.2), "clip_high": Number(0.2)}

ESTIMATOR = {
    "reinforce": Part("the reward itself (Williams 1992)"),
    "reinforce_baseline": Part("less the mean reward of the batch's others (Williams 1992)"),
    "grpo": Part("z-score in the group (arXiv 2402.03300)"),
    "dr_grpo": Part("less the group's mean (arXiv 2503.20783)"),
    "rloo": Part("less the mean of the group's others (arXiv 2402.14740)"),
    "max_rl": Part("(R - mean) / mean (arXiv 2602.02710)"),
    "pass_at_k": Part("best of k of the group (arXiv 2508.10751)", {"k": Number(4, 1, whole=True)}),
    "opo": Part("less the length-weighted mean of the group (arXiv 2505.23585)"),
    "otb": Part(
        "less the mean at each token, weighted by summed score norms (arXiv 2602.07078)",
        needs=SCORE_NORMS,
    ),
    "gdpo": Part(
        "named parts of the reward z-scored in the group, their weighted sum in the batch "
        "(arXiv 2601.05242)",
        {"reward_weights": Weights()},
    ),
    "returns": Part("discounted return from each token on (arXiv 2501.03262)", _DISCOUNT),
    "returns_baseline": Part("the same less the group's mean (arXiv 2501.03262)", _DISCOUNT),
    "turn_rloo": Part("each turn's return less the others' at that turn; unbiased", _DISCOUNT),
    "mt_grpo": Part(
        "turn rewards z-scored per turn index, outcomes in the group; biased if turn counts differ "
        "(arXiv 2505.11821v1)",
        _DISCOUNT,
        TURN_REWARDS,
    ),
    "gigpo": Part(
        "the group's z-score plus that among turns from the same state (arXiv 2505.10978)",
        {
            "discount": Number(0.95, 0.0, 1.0),
            "step_weight": Number(1.0),
            "divide": Number(1, 0, 1, whole=True),
        },
        STATES,
    ),
    "information_gain": Part(
        "by how much each turn made the right answer likelier, and outcomes, z-scored in the group "
        "and summed backwards (arXiv 2510.14967)",
        {"discount": _SHARE, "separate": Number(0, 0, 1, whole=True)},
        INFORMATION_GAIN,
    ),
    "tree_grpo": Part(
        "z-score in the tree plus that in the group, over the path's length; shared turns have the "
        "sum (arXiv 2509.21240)",
        needs=BRANCHES,
    ),
    "arpo": Part(
        "z-score in the group; shared turns have the mean of their branches (arXiv 2507.19849)",
        needs=BRANCHES,
    ),
    "arpo_soft": Part("the same with the sum (arXiv 2507.19849)", needs=BRANCHES),
    "remax": Part("less the reward of a greedy episode (arXiv 2310.10505)", needs=GREEDY),
    "counterfactual": Part(
        "how much each turn changed the mean reward of playing on; unbiased", needs=TURN_VALUES
    ),
    "hca": Part(
        "return times 1 - pi/h, h the turn's probability given the outcome (Harutyunyan 2019)",
        {"discount": _SHARE, "ratio_cap": Number(5.0, 1.0)},
        HINDSIGHT,
    ),
    "hcapo": Part(
        "the group's z-score plus that of turns weighted by hindsight (arXiv 2603.08754)",
        {
            "discount": _SHARE,
            "hindsight_weight": Number(1.0),
            "hindsight_temperature": Number(1.0, 1e-6),
            "ratio_low": Number(0.8, 0.0, 1.0),
            "ratio_high": Number(1.2, 1.0),
        },
        HINDSIGHT,
    ),
    "process_rloo": Part(
        "rewards per token and outcomes, each less the others' (arXiv 2502.01456)",
        _DISCOUNT,
        PROCESS_REWARDS,
    ),
    "token_gae": Part("advantage estimation over tokens (arXiv 1506.02438)", _GAE, CRITIC),
    "turn_gae": Part("the same over turns (arXiv 2512.17008)", _GAE, CRITIC),
    "bilevel_gae": Part(
        "the same over turns, then over each turn's tokens (arXiv 2504.20073)",
        {**_GAE, "turn_discount": Number(0.95, 0.0, 1.0)},
        CRITIC,
    ),
    "length_adaptive_gae": Part(
        "over tokens, with a decay that grows with length (arXiv 2504.05118)",
        {"discount": _SHARE, "alpha": Number(0.05, 1e-6)},
        CRITIC,
    ),
    "none": Part("0: no policy loss, the terms beside it alone"),
    "distillation": Part(
        "log teacher - log policy of each token (arXiv 2306.13649)", needs=TEACHER
    ),
}
UNGROUPED = frozenset(
    {
        *("reinforce", "reinforce_baseline", "returns", "hca", "distillation", "none"),
        *("token_gae", "turn_gae", "bilevel_gae", "length_adaptive_gae"),
        *("remax", "counterfactual"),
    }
)
"""Estimators that compare nothing within a group, so that a group may be of one."""
NO_SHAPING = frozenset({"max_rl", "pass_at_k", "gdpo", "counterfactual", "distillation", "none"})
"""Estimators that a penalty among the rewards makes no sense for: those for rewards of 0 and 1, the
one whose rewards are named, and those that would not see it, since they compare replays, ask a
teacher, or estimate nothing."""
NO_PENALTY = NO_SHAPING | {
    *("mt_grpo", "gigpo", "information_gain", "hcapo"),
    *("process_rloo", "tree_grpo", "arpo", "arpo_soft"),
}
"""Estimators that a KL penalty makes no sense for: these; those that divide all they compare by its
deviation, where a penalty of any size would be as large as the rewards as soon as these are equal;
the one whose rewards per token are something else; and those on trees, where what episodes share
stands, with its penalty, in one of them alone."""
OBJECTIVE = {
    "clip": Part(
        "clipped ratio, and a second bound where advantages are negative (arXiv 1707.06347)",
        {**_CLIP, "dual_clip": Number(math.inf, 1.0)},
    ),
    "policy_gradient": Part("ratio times advantage, unbounded (Williams 1992)"),
    "cispo": Part(
        "bounded weight of the log-probability (arXiv 2506.13585)",
        {"clip_low": Number(1.0), "clip_high": Number(4.0)},
    ),
    "sapo": Part(
        "soft gate around ratio 1 (arXiv 2511.20347)",
        {"gate_positive": Number(1.0, 1e-6), "gate_negative": Number(1.05, 1e-6)},
    ),
    "dppo_tv": Part("trust region in probability (arXiv 2602.04879)", _CLIP),
    "dppo_kl": Part(
        "trust region in binary divergence (arXiv 2602.04879)", {"divergence": Number(0.05)}
    ),
    "sequence_squared": Part(
        "squared log-ratio of the whole sequence (arXiv 2507.20534)", {"temperature": Number(0.1)}
    ),
    "squared": Part(
        "squared log-ratio of each token, inside a window (arXiv 2602.02276)",
        {
            "temperature": Number(0.1),
            "window_low": Number(math.inf),
            "window_high": Number(math.inf),
        },
    ),
    "gmpo": Part(
        "geometric mean of a sequence's clipped ratios (arXiv 2507.20673)",
        {"window_low": Number(0.4), "window_high": Number(0.4)},
    ),
}
RATIO_LEVEL = {
    "token": Part("one importance ratio per token (arXiv 1707.06347)"),
    "sequence": Part("the geometric mean of a sequence's (GSPO-token, arXiv 2507.18071)"),
}
AGGREGATION = {
    "token_mean": Part("every token counts the same (arXiv 2503.14476)"),
    "sequence_mean_token_mean": Part("every trajectory counts the same (arXiv 2402.03300)"),
    PLAIN_SUM: Part("the log-probability of the whole trajectory"),
    "constant": Part(
        "the same over a constant (arXiv 2503.20783)", {"length": Number(1024.0, 1.0)}
    ),
    "prompt_mean": Part("every task counts the same, and every token within it"),
}
GROUP_FILTER = {
    "none": Part("all groups"),
    "all_equal": Part("without groups whose rewards are all equal (arXiv 2503.14476)"),
    "top_spread": Part(
        "those of the largest spread of rewards (arXiv 2504.20073)", {"share": Number(0.25, 0, 1)}
    ),
    "top_variance": Part(
        "those with most of the rewards' variance (arXiv 2604.06268)", {"mass": Number(0.9, 0, 1)}
    ),
}
TRAJECTORY_FILTER = {
    "none": Part("all graded trajectories"),
    "overlong": Part("those that no budget ended (arXiv 2503.14476)"),
    "void_turns": Part("those whose every turn has a tool call or an answer (arXiv 2509.02479)"),
    "void_results": Part("the same, without turns whose calls all failed or brought nothing new"),
}
REWARD_SHAPING = {
    "none": Part("the task's reward"),
    "overlong": Part(
        "less a penalty in the last share of the token budget (arXiv 2503.14476)",
        {"overlong_band": Number(0.2, 1e-6, 1.0), "overlong_penalty": Number(1.0)},
    ),
}
TOKEN_FILTER = {
    "none": Part("all tokens alike"),
    "clip_cov": Part(
        "without a few tokens of high covariance of log-prob and advantage (arXiv 2505.22617)",
        {
            "share": Number(2e-4, 0, 1),
            "covariance_low": Number(1.0),
            "covariance_high": Number(5.0),
        },
    ),
    "kl_cov": Part(
        "those of the highest covariance are held back by a KL term (arXiv 2505.22617)",
        {"share": Number(2e-3, 0, 1), "penalty": Number(1.0)},
    ),
}
DIVERGENCE = {
    "k2": Part("half the squared log-ratio: the right gradient"),
    "k3": Part("never negative, the right value (Schulman 2020)"),
    "k3_plus": Part("the value of k3 with the gradient of k2"),
    "unbiased": Part("k3 times the importance ratio: right in both (arXiv 2512.02556)"),
}
CORRECTION = {
    BYPASS: Part("the objective's ratio is taken to the sampling policy itself"),
    "none": Part("the sampling policy is taken for the learner's"),
    "truncated": Part("truncated weight per token (arXiv 2505.24298)", {"cap": Number(2.0)}),
    "sequence_truncated": Part("truncated weight per sequence", {"cap": Number(2.0)}),
    "masked": Part(
        "weight inside an interval, else 0 (MIS; IcePop with rho_high = 5)",
        {"rho_low": Number(0.5), "rho_high": Number(2.0)},
    ),
    "geometric": Part(
        "rejects sequences by their geometric mean",
        {"rho_low": Number(0.99), "rho_high": Number(1.01)},
    ),
    "one_sided": Part("rejects bad sequences that the policy has left", {"drift": Number(0.5)}),
}
ROLLOUT = {
    "independent": Part("each episode from the beginning, by itself"),
    "greedy": Part("and one at temperature 0 beside each group (arXiv 2310.10505)", gives=GREEDY),
    "random_branches": Part(
        "trees that branch at random turns (arXiv 2509.21240)",
        {
            "trees": Number(2, 1, whole=True),
            "expansions": Number(3, 1, whole=True),
            "rounds": Number(1, 1, whole=True),
        },
        RESTORABLE,
        BRANCHES,
    ),
    "entropy_branches": Part(
        "branches after tool results that made the policy less certain (arXiv 2507.19849)",
        {
            "initial_share": Number(0.5, 0.0, 1.0),
            "branch_probability": Number(0.5, 0.0, 1.0),
            "entropy_weight": Number(0.2),
            "entropy_tokens": Number(20, 1, whole=True),
        },
        RESTORABLE,
        BRANCHES,
    ),
    "turn_replays": Part(
        "so many others beside each episode from before each of its turns",
        {"replays": Number(4, 1, whole=True)},
        RESTORABLE,
        TURN_VALUES,
    ),
}

PARTS: dict[str, Mapping[str, Part]] = {
    "estimator": ESTIMATOR,
    "objective": OBJECTIVE,
    "ratio_level": RATIO_LEVEL,
    "aggregation": AGGREGATION,
    "group_filter": GROUP_FILTER,
    "trajectory_filter": TRAJECTORY_FILTER,
    "reward_shaping": REWARD_SHAPING,
    "token_filter": TOKEN_FILTER,
    "divergence": DIVERGENCE,
    "correction": CORRECTION,
    "rollout": ROLLOUT,
}
"""Every choice of an algorithm, and what there is to choose from."""
