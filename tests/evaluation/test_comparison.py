"""Algorithms side by side, from run folders."""

import json
import math
from pathlib import Path

import pytest

from turnwise.errors import DataError
from turnwise.evaluation.comparison import _smoothed, compare, markdown, plot


def run(folder: Path, success: float, curve: list[float]) -> Path:
    folder.mkdir()
    (folder / "config.toml").write_text('name = "x"\n[environment]\nname = "bandit"\n')
    part = {"success": success, "low": success - 0.02, "high": success + 0.02}
    cold = {"success": 0.2, "low": 0.1, "high": 0.3}
    report = {"cold_start": cold, "trained": part, "seconds": 30.0}
    (folder / "report.json").write_text(json.dumps(report))
    lines = [
        {"step": step, "rollout/success": value, "rollout/tokens_sampled": 100.0}
        for step, value in enumerate(curve, 1)
    ]
    lines[4] |= {"policy/gradient_variance": 3.0, "policy/gradient_signal": 2.0}
    lines[9] |= {"policy/gradient_variance": 1.0, "policy/gradient_signal": success - 1.4}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, list[Path]]:
    slow, fast = [0.1] * 10 + [0.9] * 10, [0.1, *[1.0] * 19]
    return {
        "slow": [run(tmp_path / "s0", 0.7, slow), run(tmp_path / "s1", 0.6, [0.1] * 20)],
        "fast": [run(tmp_path / "f0", 0.9, fast), run(tmp_path / "f1", 0.92, fast)],
    }


def test_rows_by_hand(runs: dict[str, list[Path]]) -> None:
    """0.8 on average over five steps: after the fifth in one; after four of five in the other."""
    fast, slow = compare(runs, 0.8)
    assert (fast.algorithm, slow.algorithm) == ("fast", "slow")
    assert fast.steps == [5, 5]
    assert fast.tokens == [500.0, 500.0]
    assert slow.steps == [15, None]
    assert slow.tokens == [1500.0, None]
    assert slow.success == [0.7, 0.6]
    assert slow.noise == pytest.approx([4 / 1.3, 4 / 1.2])


def test_nothing_but_noise_is_no_number(tmp_path: Path) -> None:
    (row,) = compare({"lost": [run(tmp_path / "l0", -1.0, [0.0] * 20)]}, 0.8)
    assert row.noise == [None]
    assert "not measured" in markdown([row], 0.8)


def test_the_table_has_every_seed(runs: dict[str, list[Path]]) -> None:
    table = markdown(compare(runs, 0.8), 0.8)
    assert "| fast | 90.0% (88.0% – 92.0%), 92.0% (90.0% – 94.0%) | 91.0% | 5, 5 |" in table
    assert "15, not reached" in table


def test_the_plot_is_an_image(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(runs, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_short_run_has_a_curve_too() -> None:
    """One point for each step, so that no plot is empty."""
    assert _smoothed([1.0, 0.0, 0.5]) == [1.0, 0.5, 0.5]
    assert _smoothed([0.0] * 5 + [1.0, 1.0]) == [0.0] * 5 + [0.2, 0.4]


def test_a_step_without_a_grade_is_no_failure() -> None:
    assert _smoothed([1.0, math.nan, 0.0]) == [1.0, 1.0, 0.5]
    first, second = _smoothed([math.nan, 1.0])
    assert math.isnan(first)
    assert second == 1.0


def test_a_run_that_is_not_finished_is_named(runs: dict[str, list[Path]]) -> None:
    (runs["slow"][0] / "report.json").unlink()
    with pytest.raises(DataError, match="s0 has no report yet"):
        compare(runs, 0.8)
