"""Where further runs of a recipe lie: by hand, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.config import load_recipe, shipped_recipes
from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.expected import (
    ExpectedRuns,
    Place,
    expected_of,
    facts,
    other_keys,
    places,
    read_expected,
)
from turnwise.storage.run_folder import RunFolder

T_OF_3 = 4.3027
"""Student's t for 97.5% and two degrees of freedom, as tables have it."""


def run_folder(path: Path, success: float | None, rewards: list[float], *changes: str) -> RunFolder:
    """A finished run of the demo, as far as its figures go."""
    folder = RunFolder.new(path)
    folder.begin(load_recipe("demo", changes))
    for step, reward in enumerate(rewards, 1):
        folder.append("metrics.jsonl", {"step": step, "reward/mean": reward})
    trained = {"success": success, "n": 300, "tasks": 300, "environment": "search 1, data a"}
    made = {"versions": "turnwise 1", "machine": "a processor"}
    report = {"seed": 0, "trained": trained, "comparisons": [], "statement": made}
    folder.write_text("report.json", json.dumps(report))
    return folder


def runs_of(figure: str, values: list[float]) -> ExpectedRuns:
    runs = [{"figures": {figure: value}, "tasks": 300} for value in values]
    return ExpectedRuns(load_recipe("demo"), runs)


def placed(folder: RunFolder, expected: ExpectedRuns) -> Place:
    (place,) = places(folder, facts(folder), expected)
    return place


def test_the_figures_of_a_run(tmp_path: Path) -> None:
    found = facts(run_folder(tmp_path / "run", 0.5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]))
    assert found["figures"] == pytest.approx(
        {
            "success, trained": 0.5,
            "reward, steps 1 – 2": 0.1,
            "reward, steps 3 – 4": 0.5,
            "reward, steps 5 – 5": 0.8,
            "reward, steps 6 – 6": 1.0,
        }
    )
    assert (found["made"], found["tasks"]) == ("turnwise 1; a processor", 300)
    assert list(facts(run_folder(tmp_path / "none", 0.5, []))["figures"]) == ["success, trained"]


def test_intervals_by_hand(tmp_path: Path) -> None:
    """Mean ± t s sqrt(1 + 1/3); a success varies by luck at least, here with one in 302."""
    folder = run_folder(tmp_path / "run", 0.004, [0.9])
    place = placed(folder, runs_of("reward, steps 1 – 1", [0.5, 0.6, 0.7]))
    half = T_OF_3 * 0.1 * (4 / 3) ** 0.5
    assert (place.low, place.high) == pytest.approx((0.6 - half, 0.6 + half), abs=1e-4)
    assert place.inside
    place = placed(folder, runs_of("success, trained", [0.0, 0.0, 0.0]))
    deviation = (1 / 302 * 301 / 302 / 300) ** 0.5
    assert place.low == 0
    assert place.high == pytest.approx(T_OF_3 * deviation * (4 / 3) ** 0.5, abs=1e-5)
    assert place.inside
    assert not placed(folder, runs_of("success, trained", [0.8, 0.81, 0.82])).inside


def test_more_figures_widen_each_interval(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", 0.5, [0.9])
    alone = runs_of("reward, steps 1 – 1", [0.5, 0.6, 0.7])
    both = [one | {"figures": one["figures"] | {"success, trained": 0.5}} for one in alone.runs]
    wider = places(folder, facts(folder), ExpectedRuns(alone.recipe, both))[0]
    assert wider.high - 0.6 == pytest.approx(
        6.2053 / T_OF_3 * (placed(folder, alone).high - 0.6), rel=1e-4
    )


def test_runs_with_other_keys_are_refused_but_for_those_of_the_machine(tmp_path: Path) -> None:
    same = ["seed=7", "threads=3", "model.device=cpu", "learning.compute_dtype=float32"]
    other = run_folder(tmp_path / "run", 0.5, [0.9], *same)
    expected = runs_of("success, trained", [0.5, 0.5, 0.5])
    assert placed(other, expected).inside
    longer = run_folder(tmp_path / "longer", 0.5, [0.9], "train.steps=30", "rollout.top_k=3")
    told = "longer is not comparable with the runs of demo .* other rollout.top_k, train.steps"
    with pytest.raises(DataError, match=told):
        placed(longer, expected)


def test_runs_without_figures_are_refused(tmp_path: Path) -> None:
    expected = runs_of("success, trained", [0.5, 0.5, 0.5])
    with pytest.raises(DataError, match="has no success, trained"):
        placed(run_folder(tmp_path / "ungraded", None, []), expected)
    folder = run_folder(tmp_path / "run", 0.5, [])
    (folder.path / "report.json").unlink()
    with pytest.raises(DataError, match="the run is not finished"):
        placed(folder, expected)


def test_few_runs_are_no_interval_and_a_recipe_without_runs_is_named(tmp_path: Path) -> None:
    file = tmp_path / "demo.expected.json"
    values: dict[str, Any] = {"recipe": load_recipe("demo").model_dump(exclude_none=True)}
    file.write_text(json.dumps(values | {"runs": [{}, {}]}))
    with pytest.raises(DataError, match="has 2 runs: an interval needs 3 or more"):
        expected_of(file)
    with pytest.raises(ConfigError, match=r"no runs of recipe 'mine' .* give a run of demo"):
        read_expected("mine")


def test_runs_that_come_with_turnwise_are_of_recipes_as_they_are() -> None:
    files = {name: path.with_suffix(".expected.json") for name, path in shipped_recipes().items()}
    shipped = [name for name, file in files.items() if file.is_file()]
    assert "demo" in shipped
    for name in shipped:
        expected = read_expected(name)
        assert other_keys(load_recipe(name), expected.recipe) == []
        assert len({one["seed"] for one in expected.runs}) == len(expected.runs) >= 3
        assert {tuple(one["figures"]) for one in expected.runs} == {
            tuple(expected.runs[0]["figures"])
        }
