"""The table of algorithms, and what `make_algorithm` refuses."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from turnwise.algorithms import make_algorithm, table
from turnwise.algorithms.aggregation import AGGREGATIONS
from turnwise.algorithms.corrections import CORRECTIONS
from turnwise.algorithms.filters import GROUP_FILTERS, TRAJECTORY_FILTERS
from turnwise.algorithms.kl import DIVERGENCES
from turnwise.algorithms.losses import LOG_RATIOS
from turnwise.algorithms.objectives import OBJECTIVES
from turnwise.algorithms.parts import PARTS, Number
from turnwise.algorithms.shaping import REWARD_SHAPINGS
from turnwise.algorithms.token_filters import TOKEN_FILTERS
from turnwise.errors import ConfigError
from turnwise.rollout.collect import ROLLOUTS

FUNCTIONS: dict[str, tuple[Mapping[str, Callable[..., Any]], int]] = {
    "objective": (OBJECTIVES, 1),
    "ratio_level": (LOG_RATIOS, 1),
    "aggregation": (AGGREGATIONS, 3),
    "group_filter": (GROUP_FILTERS, 1),
    "trajectory_filter": (TRAJECTORY_FILTERS, 1),
    "reward_shaping": (REWARD_SHAPINGS, 2),
    "token_filter": (TOKEN_FILTERS, 2),
    "divergence": (DIVERGENCES, 3),
    "correction": (CORRECTIONS, 1),
    "rollout": (ROLLOUTS, 5),
}
"""The functions of each choice, and how many arguments come before their numbers; the estimators
have a test of their own."""


def test_rows_are_what_the_papers_say() -> None:
    dapo, gspo = make_algorithm("dapo", {}), make_algorithm("gspo", {})
    assert dapo.numbers_of("objective")["clip_high"] == 0.28
    assert dapo.numbers_of("objective")["clip_low"] == 0.2
    assert (dapo.aggregation, dapo.group_filter) == ("token_mean", "all_equal")
    assert (dapo.trajectory_filter, dapo.reward_shaping) == ("none", "none")
    simpletir = make_algorithm("simpletir", {})
    assert (simpletir.estimator, simpletir.trajectory_filter) == ("grpo", "void_turns")
    assert make_algorithm("dr_grpo", {}).estimator == "dr_grpo"
    assert gspo.ratio_level == "sequence"
    assert gspo.numbers == {"clip_low": 3e-4, "clip_high": 4e-4}
    assert make_algorithm("starpo_s", {}).numbers_of("group_filter") == {"share": 0.25}
    assert make_algorithm("vapo", {}).numbers_of("estimator")["alpha"] == 0.05
    assert make_algorithm("gmpo", {}).numbers_of("objective") == {
        "window_low": 0.4,
        "window_high": 0.4,
    }
    assert make_algorithm("clip_cov", {}).numbers_of("token_filter") == {
        "share": 2e-4,
        "covariance_low": 1.0,
        "covariance_high": 5.0,
    }
    assert make_algorithm("kl_cov", {}).numbers_of("token_filter") == {
        "share": 2e-3,
        "penalty": 1.0,
    }
    starpo, starpo_s = make_algorithm("starpo", {}), make_algorithm("starpo_s", {})
    assert (starpo.kl_coefficient, starpo.kl_reward_coefficient) == (0.0, 0.001)
    assert (starpo_s.estimator, starpo_s.group_filter) == ("token_gae", "top_spread")
    assert starpo_s.needs == {"critic"}
    assert not starpo_s.has_kl
    assert starpo_s.numbers_of("objective")["clip_high"] == 0.28
    kimi = make_algorithm("kimi_k2", {})
    assert (kimi.objective, kimi.aggregation) == ("sequence_squared", "sequence_mean_token_sum")
    assert kimi.has_terms_without_advantage
    assert make_algorithm("igpo", {}).needs == {"information_gain"}
    assert make_algorithm("ppo", {}).needs == {"critic"}
    assert make_algorithm("grpo", {}).needs == set()


@pytest.mark.parametrize("row", table(), ids=lambda row: row["name"])
def test_every_row_passes_its_own_checks(row: dict[str, Any]) -> None:
    given = {key: row[key] for key in PARTS} | row["numbers"]
    assert make_algorithm(row["name"], given) == make_algorithm(row["name"], {})


@pytest.mark.parametrize("choice", FUNCTIONS)
def test_every_part_has_its_function_and_the_numbers_that_it_takes(choice: str) -> None:
    functions, arguments = FUNCTIONS[choice]
    assert set(functions) == set(PARTS[choice])
    for name, part in PARTS[choice].items():
        taken = list(inspect.signature(functions[name]).parameters)[arguments:]
        assert taken == list(part.numbers), name


def test_defaults_are_in_their_ranges() -> None:
    numbers = [
        number
        for options in PARTS.values()
        for part in options.values()
        for number in part.numbers.values()
    ]
    assert all(number.accepts(number.default) for number in numbers)
    assert not Number(1, 0, 5, whole=True).accepts(1.5)


def test_overrides_replace_choices() -> None:
    algorithm = make_algorithm("grpo", {"clip_high": 1, "estimator": "rloo", "whitening": True})
    assert algorithm.numbers_of("objective")["clip_high"] == 1.0
    assert algorithm.estimator == "rloo"
    assert algorithm.numbers_of("objective")["clip_low"] == 0.2
    assert algorithm.whitening


def test_a_part_that_is_replaced_takes_its_numbers_along() -> None:
    assert make_algorithm("dr_grpo", {"aggregation": "token_mean"}).numbers == {}
    assert make_algorithm("dapo", {"objective": "sapo"}).numbers == {}


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("grop", {}, "did you mean 'grpo'"),
        ("grpo", {"clip_hihg": 0.3}, "did you mean 'clip_high'"),
        ("grpo", {"estimator": "rlo"}, "did you mean 'rloo'"),
        ("grpo", {"estimator": 3}, "must be a name"),
        ("grpo", {"whitening": 1}, "true or false"),
        ("grpo", {"clip_low": "0.2"}, "a number of 0 or more"),
        ("grpo", {"clip_low": True}, "a number of 0 or more"),
        ("grpo", {"clip_low": float("nan")}, "a number of 0 or more"),
        ("grpo", {"clip_low": -0.1}, "a number of 0 or more"),
        ("ppo", {"decay": 1.1}, "a number from 0 to 1"),
        ("pass_at_k", {"k": 2.5}, "a whole number of 1 or more"),
        ("grpo", {"kl_coefficient": -1}, "a number of 0 or more"),
        ("grpo", {"length": 512}, "length goes with aggregation = 'constant'"),
        (
            "grpo",
            {"cap": 2.0},
            "cap goes with correction = 'truncated', but correction is 'bypass'",
        ),
        ("ppo", {"estimator": "grpo", "decay": 0.9}, "decay goes with estimator = 'token_gae'"),
        ("dapo", {"overlong_band": 0.1}, "overlong_band goes with reward_shaping = 'overlong'"),
        ("dapo", {"reward_shaping": "overlong", "overlong_band": 4096}, "from 1e-06 to 1"),
        ("grpo", {"trajectory_filter": "void_turn"}, "did you mean 'void_turns'"),
        ("max_rl", {"reward_shaping": "overlong"}, "max_rl cannot have the penalties"),
        ("grpo", {"estimator": "remax"}, "choose rollout = 'greedy'"),
        ("grpo", {"rollout": "greedy"}, "choose rollout = 'independent'"),
        ("arpo", {"rollout": "greedy"}, "choose rollout = 'random_branches' or 'entropy_branches'"),
        ("tree_grpo", {"replays": 2}, "replays goes with rollout = 'turn_replays'"),
        ("starpo", {"kl_coefficient": 0.1}, "in the loss .* and in the reward"),
        ("grpo", {"divergence": "k1"}, "unknown divergence 'k1'"),
        ("gigpo", {"kl_reward_coefficient": 0.1}, "gigpo cannot have a KL penalty"),
        ("gdpo", {"reward_shaping": "overlong"}, "gdpo cannot have the penalties"),
        ("gdpo", {"group_filter": "all_equal"}, "gdpo z-scores over all episodes of the batch"),
        ("gdpo", {"trajectory_filter": "overlong"}, "set trajectory_filter to 'none'"),
        ("gdpo", {"reward_weights": 1.0}, "a table of names and weights other than 0"),
        ("gdpo", {"reward_weights": {"right": 0}}, "a table of names and weights other than 0"),
        ("gdpo", {"reward_weights": {"right": "1"}}, "a table of names and weights"),
        ("grpo", {"reward_weights": {"a": 1}}, "reward_weights goes with estimator = 'gdpo'"),
        ("tree_grpo", {"aggregation": "token_mean"}, "sequence_mean_token_sum' alone"),
        ("max_rl", {"kl_reward_coefficient": 0.1}, "max_rl cannot have a KL penalty"),
        ("grpo", {"estimator": "pass_at_k", "kl_reward_coefficient": 1}, "use kl_coefficient"),
        ("grpo", {"kl_target": 0.1}, "kl_target adapts a coefficient, but"),
        ("starpo", {"kl_horizon": 100}, "kl_horizon goes with kl_target"),
        ("starpo", {"kl_target": 0.1, "kl_horizon": 0}, "a number of 1 or more"),
        ("counterfactual", {"reward_shaping": "overlong"}, "cannot have the penalties of"),
        ("arpo", {"kl_reward_coefficient": 0.1}, "arpo cannot have a KL penalty"),
        ("grpo", {"estimator": "none"}, "nothing would be learned: set one of observation_coeff"),
        ("sdpo", {"self_teacher_coefficient": 0}, "nothing would be learned"),
        ("sdpo", {"objective": "cispo"}, "objective is of the policy loss, and estimator none"),
        ("sdpo", {"clip_high": 0.3}, "clip_high is of the policy loss"),
        ("sdpo", {"reward_shaping": "overlong"}, "none cannot have the penalties"),
        ("grpo", {"name": "mine"}, "unknown algorithm option 'name'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_algorithm(name, overrides)


def test_the_table_needs_no_torch() -> None:
    code = "import sys, turnwise.algorithms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
