"""The runs of a study: their order, what stands on top of what, and recipes that cannot be."""

from pathlib import Path
from typing import Any

import pytest

from study_fake_runs import STUDIES, write_study
from tests.small_runs import write_recipe
from turnwise.algorithms.registry import make_algorithm
from turnwise.errors import ConfigError
from turnwise.parts.algorithm_checks import check_algorithm_for_environment
from turnwise.rewards.composition import make_reward
from turnwise.rewards.parts import RewardPart
from turnwise_studies.config import load_study
from turnwise_studies.plan import PlannedRun, leaves, planned_runs


def planned(
    folder: Path, overrides: tuple[str, ...] = (), small: bool = False, **tables: Any
) -> dict[str, PlannedRun]:
    study = load_study(write_study(folder, **{"seeds": [3, 4], **tables}), small)
    return {run.name: run for run in planned_runs(study, overrides)}


def test_all_arms_of_a_seed_come_before_the_next(tmp_path: Path) -> None:
    found = planned(tmp_path)
    assert list(found) == ["one-3", "two-3", "one-4", "two-4"]
    assert [run.recipe.seed for run in found.values()] == [3, 3, 4, 4]
    assert {(run.recipe.sft.steps, run.after) for run in found.values()} == {(400, None)}


def test_a_cold_start_comes_first_and_is_all_that_it_trains(tmp_path: Path) -> None:
    once = planned(tmp_path, cold_start={"settings": {"sft": {"steps": 9}}})
    assert list(once) == ["cold_start-3", "one-3", "two-3", "one-4", "two-4"]
    assert {run.after for run in once.values()} == {None, "cold_start-3"}
    cold = once["cold_start-3"].recipe
    assert (cold.sft.steps, cold.train.steps, cold.seed) == (9, 0, 3)
    assert (once["one-4"].recipe.sft.steps, once["one-4"].recipe.train.steps) == (0, 200)
    each = planned(tmp_path, cold_start={"each_seed": True, "arms": ["two"]})
    assert list(each) == ["cold_start-3", "one-3", "two-3", "cold_start-4", "one-4", "two-4"]
    assert each["two-4"].after == "cold_start-4"
    assert (each["one-4"].after, each["one-4"].recipe.sft.steps) == (None, 400)


def test_an_arm_that_continues_another_comes_after_it_and_has_no_cold_start(tmp_path: Path) -> None:
    found = planned(tmp_path, cold_start={"each_seed": True}, continues={"two": "one"})
    assert found["one-3"].after == "cold_start-3"
    assert (found["two-4"].after, found["two-4"].recipe.sft.steps) == ("one-4", 0)


@pytest.mark.parametrize(
    ("continues", "error"),
    [({"one": "two"}, "write that arm before"), ({"two": "on"}, "unknown arm 'on'")],
)
def test_an_arm_continues_one_that_is_written_before(
    continues: dict[str, str], error: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=error):
        planned(tmp_path, continues=continues)


def taught(model: Any) -> dict[str, Any]:
    """An arm's settings with a teacher, or teachers by environments."""
    return {"algorithm": {"name": "distillation", "teacher": {"model": model}}}


@pytest.mark.wing("algorithms")
def test_an_arms_model_stands_for_the_run_of_the_same_seed(tmp_path: Path) -> None:
    learned = taught({"search": "arm:one", "sums": "arm:two"})
    base = {"evaluation": {"base": "arm:one"}}
    arms = {"one": {}, "two": {}, "learned": learned, "beside": base}
    found = planned(tmp_path, arms=arms, cold_start={})
    assert found["learned-4"].models == {"arm:one": "one-4", "arm:two": "two-4"}
    assert list(found["learned-4"].needed) == ["cold_start-3", "one-4", "two-4"]
    assert (found["beside-3"].models, found["two-3"].models) == ({"arm:one": "one-3"}, {})


@pytest.mark.wing("algorithms")
@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ({"arms": {"two": taught("arm:on"), "one": {}}}, "arm 'two': model arm:on: unknown arm"),
        ({"arms": {"two": taught("arm:one"), "one": {}}}, "'two': model arm:one is not trained by"),
        ({"arms": {"one": taught("arm:one")}}, "write that arm before"),
        (
            {"cold_start": {"settings": {"evaluation": {"base": "arm:one"}}}},
            "arm 'cold_start': model arm:one is not trained by then",
        ),
    ],
)
def test_an_arms_model_is_of_one_written_before(
    tables: dict[str, Any], error: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=error):
        planned(tmp_path, **tables)


def test_later_settings_are_on_top_and_stages_left_out_stay_out(tmp_path: Path) -> None:
    small = {"seeds": [0], "settings": {"train": {"steps": 2}, "sft": {"steps": 5}}}
    arms = {"one": {}, "none": {"train": {"steps": 0}}, "longer": {"sft": {"steps": 50}}}
    tables: dict[str, Any] = {"smallest": small, "arms": arms, "cold_start": {}}
    tables["settings"] = {"train": {"steps": 20, "group_size": 4}, "evaluation": {"sft": False}}
    whole = planned(tmp_path, **tables)
    assert [run.recipe.train.steps for run in whole.values()][:4] == [0, 20, 0, 20]
    assert whole["longer-3"].recipe.sft.steps == 50
    found = planned(tmp_path, ("train.steps=3", "train.group_size=8"), small=True, **tables)
    assert {run.recipe.train.group_size for run in found.values()} == {8}
    steps = {n: (run.recipe.sft.steps, run.recipe.train.steps) for n, run in found.items()}
    expected = {"cold_start-0": (5, 0), "one-0": (0, 3), "none-0": (0, 0), "longer-0": (5, 3)}
    assert steps == expected


@pytest.mark.wing("synthesis")
def test_texts_are_learned_by_the_arms_with_such_a_section_alone(tmp_path: Path) -> None:
    small = {"seeds": [0], "settings": {"cpt": {"steps": 2}}}
    arms = {"one": {}, "texts": {"cpt": {"file": ["texts.jsonl"], "steps": 9}}}
    for smallest, steps in ((False, 9), (True, 2)):
        found = planned(tmp_path, small=smallest, arms=arms, smallest=small)
        without, texts = [run.recipe.added().get("cpt") for run in found.values()][:2]
        assert without is None
        assert texts.steps == steps


def test_another_environment_has_none_of_the_recipes_options(tmp_path: Path) -> None:
    other = {"environment": {"name": "frozen_lake", "options": {"move_reward": -0.1}}}
    same = {"environment": {"options": {"top_k": 2}}}
    found = planned(tmp_path, arms={"other": other, "same": same})
    assert found["other-3"].recipe.environment.options == {"move_reward": -0.1}
    assert found["same-3"].recipe.environment.options["result_tokens"] == 40


def test_names_with_a_dot_are_no_dotted_keys() -> None:
    table = {"sft": {"demonstrations": {"behaviours": {"mine.py:lazy": 1.0}}, "steps": 3}, "x": {}}
    assert dict(leaves(table)) == {
        "sft.demonstrations.behaviours": {"mine.py:lazy": 1.0},
        "sft.steps": 3,
        "x": {},
    }


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ({"arms": {"one": {"train": {"stepps": 1}}}}, "arm 'one': unknown key 'train.stepps'"),
        ({"arms": {"one": {"train": {"steps": "x"}}}}, "arm 'one': train.steps is 'x'"),
        ({"arms": {"one": {"algorithm": {"name": "grop"}}}}, "arm 'one': unknown algorithm 'grop'"),
        ({"arms": {"one": {"environment": {"name": "serch"}}}}, "arm 'one': unknown environment"),
        ({"arms": {"one": {"train": {"group_size": 1}}}}, "arm 'one': train.group_size is 1"),
        ({"recipe": "dmo"}, "unknown recipe 'dmo'"),
        (
            {"cold_start": {}, "arms": {"one": {"model": {"name": "tiny_search"}}}},
            "arm 'one' has the base tiny_search",
        ),
        ({"cold_start": {"settings": {"sft": {"steps": 0}}}}, "cold_start: it trains nothing"),
        ({"cold_start": {}, "settings": {"model": {"lora_rank": 4}}}, "would train adapters"),
    ],
)
def test_a_recipe_that_cannot_be_names_its_arm(
    tables: dict[str, Any], error: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as raised:
        planned(tmp_path, **tables)
    assert error in str(raised.value)


def test_a_recipe_may_lie_beside_the_study_and_seeds_are_the_files(tmp_path: Path) -> None:
    write_recipe(tmp_path, "Letters", "")
    assert planned(tmp_path, recipe="recipe.toml")["one-3"].recipe.name == "small"
    with pytest.raises(ConfigError, match="seeds are those of the study"):
        planned(tmp_path, ("seed=3",))


@pytest.mark.long
@pytest.mark.wing("algorithms")
@pytest.mark.wing("environments")
@pytest.mark.parametrize("name", STUDIES, ids=lambda name: Path(name).stem)
def test_studies_of_this_repository_can_run(name: str) -> None:
    """Rewards and algorithms fit the environments."""
    from environment_playing import opened

    study = load_study(name)
    planned_runs(load_study(name, smallest=True))
    for run in planned_runs(study)[: 1 + len(study.config.arms)]:
        chosen, reward = run.recipe.environment, None
        (environment,) = opened(chosen.name, chosen.options)
        if run.recipe.reward is not None:
            parts = {**environment.spec.parts, "reward_model": RewardPart(0, 1)}
            reward = make_reward(run.recipe.reward, parts, run.recipe.rollout.max_turns)
        algorithm = make_algorithm(run.recipe.algorithm.name, run.recipe.algorithm.overrides)
        check_algorithm_for_environment(run.recipe, algorithm, environment, reward)
