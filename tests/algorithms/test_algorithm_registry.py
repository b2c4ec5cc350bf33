"""The table of algorithms, and what `make_algorithm` refuses."""

import subprocess
import sys
from typing import Any

import pytest

from turnwise.algorithms import make_algorithm, table
from turnwise.algorithms.losses import LOG_RATIOS
from turnwise.algorithms.registry import CHOICES, RATIO_LEVELS
from turnwise.errors import ConfigError


def test_rows_are_what_the_papers_say() -> None:
    rows = {row["name"]: row for row in table()}
    assert set(rows) == {"grpo", "dr_grpo", "rloo", "dapo", "gspo"}
    assert rows["dapo"]["clip_high"] == 0.28
    assert rows["dapo"]["clip_low"] == 0.2
    assert rows["dapo"]["aggregation"] == "token_mean"
    assert rows["dapo"]["group_filter"] == "all_equal"
    assert rows["dr_grpo"]["estimator"] == "dr_grpo"
    assert rows["gspo"]["ratio_level"] == "sequence"
    assert (rows["gspo"]["clip_low"], rows["gspo"]["clip_high"]) == (3e-4, 4e-4)


def test_every_row_passes_its_own_checks() -> None:
    for row in table():
        choices = {key: row[key] for key in CHOICES}
        if row["aggregation"] == "constant":
            choices["aggregation_constant"] = row["aggregation_constant"]
        assert make_algorithm(row["name"], choices) == make_algorithm(row["name"], {})


def test_every_ratio_level_has_its_function() -> None:
    assert set(RATIO_LEVELS) == set(LOG_RATIOS)


def test_overrides_replace_choices() -> None:
    algorithm = make_algorithm("grpo", {"clip_high": 1, "estimator": "rloo"})
    assert algorithm.clip_high == 1.0
    assert algorithm.estimator == "rloo"
    assert algorithm.clip_low == 0.2


def test_another_aggregation_drops_the_rows_constant() -> None:
    assert make_algorithm("dr_grpo", {"aggregation": "token_mean"}).aggregation_constant is None


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("grop", {}, "did you mean 'grpo'"),
        ("grpo", {"clip_hihg": 0.3}, "did you mean 'clip_high'"),
        ("grpo", {"estimator": "rlo"}, "did you mean 'rloo'"),
        ("grpo", {"estimator": 3}, "must be a name"),
        ("grpo", {"clip_low": "0.2"}, "finite number"),
        ("grpo", {"clip_low": True}, "finite number"),
        ("grpo", {"clip_low": float("nan")}, "finite number"),
        ("grpo", {"clip_low": -0.1}, "too small"),
        ("grpo", {"clip_high": 0}, "too small"),
        ("grpo", {"kl_coefficient": -1}, "too small"),
        ("grpo", {"aggregation": "constant"}, "aggregation_constant goes with"),
        ("grpo", {"aggregation_constant": 512}, "aggregation_constant goes with"),
        ("grpo", {"name": "mine"}, "unknown algorithm option 'name'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_algorithm(name, overrides)


def test_the_table_needs_no_torch() -> None:
    code = "import sys, turnwise.algorithms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
