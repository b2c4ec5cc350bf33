"""Numbers of a run, by hand."""

import json
import math
from pathlib import Path

import pytest

from study_fake_runs import fake_run
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, DataError
from turnwise_studies.config import MetricConfig
from turnwise_studies.results.measures import Measured, check_metrics, measure, smoothed


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path / "run", [True, False, True, True], [0.1, *[1.0] * 9])


def number(run: Path, **places: object) -> float | None:
    return measure("m", MetricConfig.model_validate(places), run).value


def test_a_report_gives_numbers_with_their_intervals(run: Path) -> None:
    metric = MetricConfig(report="trained.success")
    assert measure("m", metric, run) == Measured(0.75, 0.375, 1.0)
    assert number(run, report="trained.breakdown.hops.two.success") == 0.375
    assert measure("m", MetricConfig(report="trained.tool_calls"), run) == Measured(1.5)
    assert number(run, report="trained.breakdown.hops.three.success") is None
    assert number(run, report="trained.breakdown") is None


def test_a_series_is_averaged_at_the_end_or_counted_until_a_level(run: Path) -> None:
    """0.8 on average over five steps: after the fifth, of 100 tokens each; 0.9 after the sixth."""
    assert number(run, series="rollout/success") == 1.0
    assert number(run, series="rollout/success", until=0.8) == 5
    assert number(run, series="rollout/success", until=0.9, count="tokens") == 600
    assert number(run, series="rollout/success", until=1.1) is None
    assert number(run, series="nothing") is None


def test_times_are_a_series_too(run: Path) -> None:
    lines = [{"step": step, "seconds/step": step / 2} for step in range(1, 11)]
    (run / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert number(run, series="seconds/step") == 4.0
    assert number(run, series="rollout/success") == 1.0


def test_steps_without_a_number_are_left_out(run: Path) -> None:
    lines = [{"step": 1, "x": 4.0}, {"step": 2}, {"step": 3, "x": 2.0}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert number(run, series="x") == 3.0
    assert smoothed([4.0, math.nan, 2.0]) == [4.0, 4.0, 3.0]
    assert math.isnan(smoothed([math.nan, 1.0])[0])
    assert smoothed([0.0] * 5 + [1.0, 1.0]) == [0.0] * 5 + [0.2, 0.4]


def test_a_function_of_ones_own(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def files(run): return len(list(run.iterdir()))\ndef text(run): return 'x'\n")
    assert number(run, function=f"{file}:files") == 5
    with pytest.raises(DataError, match=r"gave 'x' for .*run: give a finite number"):
        number(run, function=f"{file}:text")


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        ({"report": "traned.success"}, "did you mean 'trained'"),
        ({"report": "trained.sucess"}, "did you mean 'success'"),
        ({"report": "trained"}, "unknown number"),
        ({"report": "base.success"}, "no arm has it"),
        ({"function": "nowhere.py:f"}, "there is no such file"),
        ({"series": "rollout/success"}, "no arm has train.steps"),
    ],
)
def test_a_metric_that_no_run_will_have_is_refused(metric: dict[str, str], error: str) -> None:
    recipe = load_recipe("search", ["train.steps=0", "evaluation.base=false"])
    with pytest.raises(ConfigError, match=f"metric 'm'.*{error}"):
        check_metrics({"m": MetricConfig.model_validate(metric)}, [recipe], set)


def test_an_evaluation_has_tasks_and_may_be_an_ablation() -> None:
    recipe = load_recipe("search")
    ablation = {"m": MetricConfig(report="no_search.success")}
    check_metrics(ablation, [recipe], lambda: {"no_search"})
    none = load_recipe("search", ["evaluation.tasks=0"])
    with pytest.raises(ConfigError, match=r"no arm has evaluation\.tasks"):
        check_metrics(ablation, [none], lambda: {"no_search"})
