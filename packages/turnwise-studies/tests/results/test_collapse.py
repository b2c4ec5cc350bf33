"""Collapses of finished runs, by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwise_studies.results.collapse import collapse, highest, warning


def run(folder: Path, success: Sequence[float], spread: Sequence[float] = ()) -> Path:
    folder.mkdir()
    (folder / "config.toml").write_text('name = "x"\n[environment]\nname = "search"\n')
    lines = [
        {"step": step, "rollout/success": one, "reward/mean": one}
        | ({"reward/group_std": spread[step - 1]} if spread else {})
        for step, one in enumerate(success, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_collapse_is_a_fall_to_half_of_the_highest(tmp_path: Path) -> None:
    """Averages of five: 1.0, 0.8, 0.6, 0.4 after step 8, which is the first at half or below."""
    fallen = run(tmp_path / "fallen", [1.0] * 5 + [0.0] * 5)
    assert (highest(fallen), collapse(fallen), warning(fallen)) == (1.0, 8, None)


@pytest.mark.parametrize("level", [0.5, 0.0])
def test_success_that_stays_is_no_collapse(tmp_path: Path, level: float) -> None:
    assert collapse(run(tmp_path / "flat", [level] * 10)) is None


def test_a_short_run_has_neither(tmp_path: Path) -> None:
    short = run(tmp_path / "short", [1.0, 0.0])
    assert (highest(short), collapse(short), warning(short)) == (None, None, None)


def test_the_warning_is_the_first(tmp_path: Path) -> None:
    """Averages of the spread: 0.18 after step 9, below 0.45 of 0.6, but not surely so (a fall of
    0.42 with four standard errors of 0.12); 0.06 after step 10, and sure."""
    trapped = run(tmp_path / "trapped", [0.4] * 12, [0.6] * 5 + [0.3] + [0.0] * 6)
    assert warning(trapped) == 10
