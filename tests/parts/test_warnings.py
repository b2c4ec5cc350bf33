"""What a run is told of its algorithm before it begins."""

from pathlib import Path

import pytest

from tests.parts.recipes import Made
from turnwise.parts.algorithm_checks import warnings_of
from turnwise.types import Task


@pytest.mark.parametrize("name", ["gspo", "gmpo", "sapo"])
def test_a_run_is_told_when_its_ratios_are_all_one(made: Made, name: str) -> None:
    (warning,) = warnings_of(*made(f"algorithm.name={name}"))
    assert "with one update a step, and nothing stale, its gradient is that of grpo" in warning
    assert warnings_of(*made(f"algorithm.name={name} learning.updates_per_step=2")) == []
    assert warnings_of(*made(f"algorithm.name={name} train.steps=0")) == []


def test_ratios_to_an_older_sampler_are_not_one(made: Made) -> None:
    stale = "train.max_staleness=1 engine.deterministic=false"
    assert warnings_of(*made(f"algorithm.name=sapo {stale}")) == []
    corrected = f"{stale} algorithm.correction=truncated"
    assert len(warnings_of(*made(f"algorithm.name=sapo {corrected}"))) == 1


@pytest.mark.wing("algorithms")
def test_ratios_of_earlier_trajectories_are_not_one(made: Made) -> None:
    assert warnings_of(*made("algorithm.name=gspo algorithm.extension=fresh_replay")) == []


def test_a_run_is_told_when_nothing_corrects_for_age(made: Made) -> None:
    stale = "algorithm.name=gspo train.max_staleness=1 engine.deterministic=false"
    two = f"{stale} learning.updates_per_step=2"
    (warning,) = warnings_of(*made(two))
    assert "nothing corrects for samples of older weights" in warning
    assert warnings_of(*made(f"{two} algorithm.correction=truncated")) == []
    for quiet in ("", "algorithm.name=ppo", "algorithm.name=dapo"):
        assert warnings_of(*made(quiet)) == []


OWN_ESTIMATORS = """
import numpy as np
from turnwise.algorithms.estimators import of_rewards
from turnwise.algorithms.parts import Trait, part
@part("estimator", of=of_rewards)
def centred(rewards):
    return rewards - rewards.mean()
@part("estimator", of=of_rewards)
def plain(rewards):
    return rewards
@part("estimator", of=of_rewards, traits=[Trait.UNGROUPED])
def meant(rewards):
    return rewards
@part("estimator", of=of_rewards)
def ranked(rewards):
    return np.argsort(np.argsort(rewards)) - (len(rewards) - 1) / 2
@part("estimator", of=of_rewards)
def broken(rewards):
    return rewards[99]
"""


@pytest.mark.parametrize(
    ("name", "warned"), [("centred", 0), ("plain", 1), ("meant", 0), ("ranked", 1), ("broken", 0)]
)
def test_a_run_is_told_when_its_own_estimator_compares_what_is_equal(
    made: Made, tmp_path: Path, name: str, warned: int
) -> None:
    file = tmp_path / "own_estimators.py"
    file.write_text(OWN_ESTIMATORS)
    found = warnings_of(*made(f"algorithm.estimator={file}:{name}"))
    assert len([one for one in found if "rewards are all equal" in one]) == len(found) == warned


@pytest.mark.wing("algorithms")
def test_a_run_is_told_which_environments_have_no_teacher(made: Made) -> None:
    tasks = [Task(name, "?", info={"environment": name}) for name in ("sums", "desk", "sums")]
    one = "algorithm.name=distillation algorithm.teacher.model.sums=somewhere"
    assert warnings_of(*made(one), tasks) == ["episodes of desk are not distilled: no teacher"]
    for all_of_them in (f"{one} algorithm.teacher.model.desk=somewhere", one.replace(".sums", "")):
        assert warnings_of(*made(all_of_them), tasks) == []
