"""The table of algorithms, and what `make_algorithm` refuses."""

from pathlib import Path
from typing import Any

import pytest

from tests.marked import marked
from turnwise.algorithms import make_algorithm, table
from turnwise.algorithms.parts import PARTS, Requirement
from turnwise.algorithms.registry import describe_parts
from turnwise.errors import ConfigError

MEDIAN = """
from typing import Annotated

import numpy as np

from turnwise.algorithms.estimators import of_rewards
from turnwise.algorithms.parts import Requirement, part
from turnwise.ranges import Range


@part("estimator", of=of_rewards, needs=[Requirement.TURN_REWARDS])
def median(rewards, scale: Annotated[float, Range(0, 10)] = 2.0):
    \"\"\"Less the median of the group.\"\"\"
    return scale * (rewards - np.median(rewards))


def plain(groups, k: int = 3):
    return [[] for _ in groups]


def of_two(first, second): ...


def of_text(groups, name: str = "a"): ...


def outside(groups, share: Annotated[float, Range(0, 1)] = 2.0): ...
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MEDIAN)
    return path


PUBLISHED: list[tuple[str, dict[str, Any]]] = [
    ("dapo", {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token_mean"}),
    ("dapo", {"group_filter": "all_equal", "trajectory_filter": "none"}),
    ("dapo", {"reward_shaping": "overlong", "overlong_band": 4096 / 20480, "overlong_penalty": 1}),
    ("gspo", {"ratio_level": "sequence", "clip_low": 3e-4, "clip_high": 4e-4}),
    ("gmpo", {"window_low": 0.4, "window_high": 0.4}),
    ("clip_cov", {"share": 2e-4, "covariance_low": 1, "covariance_high": 5}),
    ("kl_cov", {"share": 2e-3, "penalty": 1}),
    ("simpletir", {"estimator": "grpo", "trajectory_filter": "void_turns"}),
    ("starpo", {"kl_coefficient": 0, "kl_reward_coefficient": 0.001}),
    ("starpo_s", {"estimator": "token_gae", "clip_high": 0.28, "has_kl": False}),
    ("starpo_s", {"group_filter": "top_spread", "share": 0.25}),
    ("vapo", {"alpha": 0.05}),
    ("kimi_k2", {"objective": "sequence_squared", "aggregation": "sequence_mean_token_sum"}),
    ("ppo", {"needs": {"critic"}}),
    ("grpo", {"needs": set()}),
]


@pytest.mark.parametrize(("name", "facts"), PUBLISHED)
def test_rows_are_what_the_papers_say(name: str, facts: dict[str, Any]) -> None:
    row = make_algorithm(name, {})
    numbers = {key: value for choice in PARTS for key, value in row.numbers_of(choice).items()}
    assert {key: numbers.get(key, getattr(row, key, None)) for key in facts} == facts


@pytest.mark.parametrize("row", table(), ids=lambda row: row["name"])
def test_every_row_passes_its_own_checks(row: dict[str, Any]) -> None:
    given = {key: row[key] for key in PARTS} | row["numbers"]
    assert make_algorithm(row["name"], given) == make_algorithm(row["name"], {})


def test_a_part_of_ones_own(mine: Path) -> None:
    algorithm = make_algorithm("grpo", {"estimator": f"{mine}:median", "scale": 3})
    assert algorithm.needs == {Requirement.TURN_REWARDS}
    assert algorithm.numbers_of("estimator") == {"scale": 3.0}
    assert algorithm.part("estimator").description == "Less the median of the group."
    mine.write_text(MEDIAN.replace("2.0", "5.0"))
    assert algorithm.part("estimator").numbers["scale"].default == 2.0  # as it was
    plain = make_algorithm("grpo", {"estimator": f"{mine}:plain"})
    assert plain.numbers_of("estimator") == {"k": 3}
    assert plain.call("estimator", [1, 2]) == [[], []]


def test_a_part_of_ones_own_is_described_as_the_others(mine: Path) -> None:
    (described,) = describe_parts(f"{mine}:median")
    assert described == {
        "choice": "estimator",
        "needs": ["turn_rewards"],
        "part": f"{mine}:median",
        "description": "Less the median of the group.",
        "numbers": {"scale": 2.0},
    }
    assert [row["choice"] for row in describe_parts("overlong")] == [
        "trajectory_filter",
        "reward_shaping",
    ]
    with pytest.raises(ConfigError, match="nothing says which choice"):
        describe_parts(f"{mine}:plain")
    with pytest.raises(ConfigError, match="did you mean 'top_spread'"):
        describe_parts("top_sprea")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"estimator": "{mine}:media"}, "unknown name 'media': did you mean 'median'"),
        ({"objective": "{mine}:median"}, "is of estimator, not of objective"),
        ({"estimator": "{mine}:of_two"}, "this one has 2 without"),
        ({"estimator": "{mine}:of_text"}, "name must be an int or a float with a default"),
        ({"estimator": "{mine}:outside"}, "default of share is not a number from 0 to 1"),
        ({"estimator": "{mine}:np"}, "not an estimator: give a function"),
        ({"estimator": "{mine}:median", "scale": 11}, "scale must be a number from 0 to 10"),
        ({"estimator": "nowhere.py:median"}, "estimator file nowhere.py: there is no such file"),
        ({"estimator": "no_package.a:median"}, "estimator module 'no_package.a': there is no such"),
    ],
)
def test_own_parts_that_cannot_be(mine: Path, overrides: dict[str, Any], message: str) -> None:
    given = {
        key: value.format(mine=mine) if isinstance(value, str) else value
        for key, value in overrides.items()
    }
    with pytest.raises(ConfigError, match=message):
        make_algorithm("grpo", given)


def test_an_own_objective_is_taken_for_nothing_that_it_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def mine(inputs): ...")
    algorithm = make_algorithm("grpo", {"objective": f"{path}:mine"})
    assert algorithm.has_terms_without_advantage
    assert make_algorithm("kimi_k2", {}).has_terms_without_advantage
    assert not make_algorithm("grpo", {}).has_terms_without_advantage


def test_overrides_replace_choices() -> None:
    algorithm = make_algorithm("grpo", {"clip_high": 1, "estimator": "rloo", "whitening": True})
    assert algorithm.numbers_of("objective")["clip_high"] == 1.0
    assert algorithm.estimator == "rloo"
    assert algorithm.numbers_of("objective")["clip_low"] == 0.2
    assert algorithm.whitening
    # a part that is replaced takes its numbers along
    assert make_algorithm("dr_grpo", {"aggregation": "token_mean"}).numbers == {}
    assert make_algorithm("dapo", {"objective": "sapo"}).numbers == {}


OFF = "needs rewards that a penalty is taken off, and estimator {} of algorithm {} cannot have any"
OFF_KL = OFF.replace("a penalty", "a KL penalty")
WHOLE = "needs all episodes of the batch, and {} of algorithm gdpo leaves some out"
PLACE = "needs the place of the second model, and {} of algorithm {} has it"
TEACHER = PLACE.format("self_teacher_coefficient", "{}")
REPLAYED, ACCEPTED = {"extension": "fresh_replay"}, {"extension": "acceptance"}
OVERLONG, IN_REWARD = {"reward_shaping": "overlong"}, {"kl_reward_coefficient": 0.1}
SENSELESS: list[tuple[str, dict[str, Any], str]] = [
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
    ("pass_at_k", {"k": float("inf")}, "a whole number of 1 or more"),
    ("grpo", {"kl_coefficient": -1}, "a number of 0 or more"),
    ("grpo", {"length": 512}, "length goes with aggregation = 'constant'"),
    ("grpo", {"cap": 2.0}, "cap goes with correction = 'truncated', but correction is 'bypass'"),
    ("ppo", {"estimator": "grpo", "decay": 0.9}, "decay goes with estimator = 'token_gae'"),
    ("grpo", {"overlong_band": 0.1}, "overlong_band goes with reward_shaping = 'overlong'"),
    ("dapo", {"overlong_band": 4096}, "from 1e-06 to 1"),
    ("grpo", {"trajectory_filter": "void_turn"}, "did you mean 'void_turns'"),
    ("max_rl", OVERLONG, OFF.format("max_rl", "max_rl")),
    ("gdpo", OVERLONG, OFF.format("gdpo", "gdpo")),
    ("counterfactual", OVERLONG, OFF.format("counterfactual", "counterfactual")),
    ("sdpo", OVERLONG, OFF.format("none", "sdpo")),
    ("gigpo", IN_REWARD, OFF_KL.format("gigpo", "gigpo")),
    ("max_rl", IN_REWARD, OFF_KL.format("max_rl", "max_rl")),
    ("arpo", IN_REWARD, OFF_KL.format("arpo", "arpo")),
    ("grpo", {"estimator": "pass_at_k", "kl_reward_coefficient": 1}, "use kl_coefficient"),
    ("gdpo", {"group_filter": "all_equal"}, WHOLE.format("group_filter all_equal")),
    ("gdpo", {"trajectory_filter": "overlong"}, WHOLE.format("trajectory_filter overlong")),
    ("gdpo", {"reward_weights": 1.0}, "a table of names and weights other than 0"),
    ("gdpo", {"reward_weights": {"right": 0}}, "a table of names and weights other than 0"),
    ("gdpo", {"reward_weights": {"right": "1"}}, "a table of names and weights"),
    ("grpo", {"reward_weights": {"a": 1}}, "reward_weights goes with estimator = 'gdpo'"),
    ("grpo", {"estimator": "remax"}, "choose rollout = 'greedy'"),
    ("grpo", {"rollout": "greedy"}, "choose rollout = 'independent'"),
    ("arpo", {"rollout": "greedy"}, "choose rollout = 'random_branches' or 'entropy_branches'"),
    ("tree_grpo", {"replays": 2}, "replays goes with rollout = 'turn_replays'"),
    (
        "tree_grpo",
        {"aggregation": "token_mean"},
        r"needs token losses that are added up \(sequence_mean_token_sum\), and "
        "aggregation token_mean of algorithm tree_grpo divides them by lengths or numbers",
    ),
    (
        "starpo",
        {"kl_coefficient": 0.1},
        "needs a KL term in one place alone, and kl_reward_coefficient puts one into the reward",
    ),
    ("grpo", {"divergence": "k1"}, "unknown divergence 'k1'"),
    ("grpo", {"kl_target": 0.1}, "kl_target adapts a coefficient, but"),
    ("starpo", {"kl_horizon": 100}, "kl_horizon goes with kl_target"),
    ("starpo", {"kl_target": 0.1, "kl_horizon": 0}, "a number of 1 or more"),
    ("grpo", {"estimator": "none"}, "nothing would be learned: set one of observation_coeff"),
    ("sdpo", {"self_teacher_coefficient": 0}, "nothing would be learned"),
    ("sdpo", {"objective": "cispo"}, "objective is of the policy loss, and estimator none"),
    ("sdpo", {"clip_high": 0.3}, "clip_high is of the policy loss"),
    ("ppo", {"self_teacher_coefficient": 1}, TEACHER.format("ppo")),
    ("hero", {"self_teacher_coefficient": 1}, TEACHER.format("hero")),
    ("prime", {"self_teacher_coefficient": 1}, TEACHER.format("prime")),
    ("grpo", {"self_teacher_coefficient": 1} | REPLAYED, TEACHER.format("grpo")),
    ("ppo", REPLAYED, PLACE.format("extension fresh_replay", "ppo")),
    ("score_centering", REPLAYED, PLACE.format("extension fresh_replay", "score_centering")),
    ("echo", {"estimator": "none"} | REPLAYED, "needs a policy loss, and estimator none of alg"),
    ("echo", {"extension": "world_model"}, "needs observations that no other term trains, and obs"),
    ("otb", ACCEPTED, "needs advantages of the rewards alone, and estimator otb of algorithm otb"),
    ("starpo", ACCEPTED, "needs advantages of the rewards alone, and kl_reward_coefficient adds"),
    ("grpo", {"replayed": 1} | ACCEPTED, "replayed goes with extension = 'fresh_replay', but ext"),
    ("grpo", {"critc": {"kind": "head"}}, "unknown algorithm option 'critc': did you mean 'c"),
    ("grpo", {"nam": "mine"}, "unknown algorithm option 'nam': did you mean 'name'"),
]


@pytest.mark.parametrize(("name", "overrides", "message"), marked(SENSELESS))
def test_what_makes_no_sense_is_refused(name: str, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_algorithm(name, overrides)
