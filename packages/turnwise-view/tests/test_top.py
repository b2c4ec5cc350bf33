"""A run in the terminal while it goes on, and when it has ended."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from turnwise.errors import DataError
from turnwise.storage.run_lock import locked
from turnwise_view.top import screen, time_left, top


def text(run: Path) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(screen(run))
    return console.file.getvalue()


def append(run: Path, name: str, **values: object) -> None:
    with (run / name).open("a") as log:
        log.write(json.dumps(values) + "\n")


def test_a_run_under_way_has_its_numbers_and_the_time_left(run: Path) -> None:
    append(run, "no_signal.jsonl", step=2, reason="all rewards were equal")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("steps = 3", "steps = 43"))
    with locked(run):
        shown = text(run)
    assert "running, step 3 of 43, 60 s left" in shown
    (reward,) = [line for line in shown.splitlines() if line.startswith(" reward ")]
    assert reward.split() == ["reward", "0.3", "0.2"]
    assert "step 2 taught nothing: all rewards were equal" in shown


def test_a_run_that_died_says_how_it_goes_on(run: Path) -> None:
    shown = " ".join(text(run).split())
    assert "stopped, step 3 of 3" in shown
    assert "left" not in shown
    assert f"turnwise train --resume {run}" in shown


def test_a_run_without_steps_and_a_line_cut_off(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"step": 4, "rew')
    assert "step 3 of 3" in text(run)
    for name in ("metrics.jsonl", "timing.jsonl"):
        (run / name).unlink()
    assert "step 0 of 3" in text(run)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no run folder"):
        top(tmp_path, once=True)


@pytest.mark.parametrize(
    ("seconds", "steps", "said"), [(2.0, 10, "20 s"), (60.0, 10, "10 min"), (600.0, 12, "2.0 h")]
)
def test_the_time_left_is_that_of_the_last_steps(seconds: float, steps: int, said: str) -> None:
    timing = [{"seconds/step": 1000.0}] * 5 + [{"seconds/step": seconds}] * 10
    assert time_left(timing, steps) == said
