"""A run in a notebook: what is drawn and shown of it, with text that stays text."""

import math
from pathlib import Path

import pytest

import turnwise
from turnwise import Action, Observation, Outcome, Source, Step, Task, Trajectory, Verdict
from turnwise.config import load_recipe
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Turn


@pytest.fixture
def run(tmp_path: Path) -> turnwise.Run:
    folder = RunFolder.new(tmp_path / "<b>run")
    folder.begin(load_recipe("demo"))
    folder.append("metrics.jsonl", {"step": 1, "reward/mean": 0.25, "policy/loss": math.nan})
    folder.append("metrics.jsonl", {"step": 2, "reward/mean": 0.5})
    folder.write_evaluation("trained", {"success": 0.5, "low": 0.25, "high": 0.75, "n": 8})
    return turnwise.open_run(folder.path)


def test_metrics_are_drawn_over_the_steps(run: turnwise.Run) -> None:
    (panel,) = run.plot().axes
    assert panel.get_title() == "reward/mean"
    (line,) = panel.lines
    assert line.get_xydata().tolist() == [[1.0, 0.25], [2.0, 0.5]]
    assert len(run.plot("reward/mean", "policy/loss").axes) == 2
    with pytest.raises(ConfigError, match="reward/mean"):
        run.plot("reward/meen")


def test_a_run_shows_its_evaluations(run: turnwise.Run) -> None:
    shown = run._repr_html_()
    assert "<b>" not in shown
    assert "50.0%<td>25.0% to 75.0%<td>8 episodes" in shown


def test_an_episode_shows_what_was_said_and_nothing_of_it_is_markup() -> None:
    step = Step(Observation("<script>1</script>", Source.TOOL))
    trajectory = Trajectory(
        Task("a", "2 < 3?", {"answer": "hidden"}),
        "train/0/a",
        0,
        0,
        turns=(Turn(Action("<search>x</search>"), step), Turn(Action("yes", answer="yes"))),
        outcome=Outcome.SUCCESS,
        verdict=Verdict(1.0, True),
    )
    shown = trajectory._repr_html_()
    assert "train/0/a episode 0: success, reward 1" in shown
    assert "<th>tool<td><pre>&lt;script&gt;1&lt;/script&gt;</pre>" in shown
    assert "2 &lt; 3?" in shown
    assert "hidden" not in shown
