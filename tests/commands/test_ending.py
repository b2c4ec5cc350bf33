"""The end of `turnwise train`."""

import re
from pathlib import Path

import pytest

from tests import small_runs
from turnwise.commands.ending import tell
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
train = { steps = 2, tasks_per_step = 1, group_size = 2 }
evaluation = { tasks = 2 }
"""


def test_a_run_ends_with_its_curve_one_task_twice_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = small_runs.write_recipe(tmp_path, "Letters", TABLES)
    display = small_runs.Listening()
    folder = RunFolder.new(tmp_path / "run")
    folder = small_runs.train(recipe, folder, display=display).folder
    assert any(re.match(r"[▁-█]{2}  reward 0", text) for text in display.progress)
    tell(folder, folder.report(), "my.toml")
    told = capsys.readouterr().out
    assert re.search(r"^reward in training: 0\.\d+ in step 1\n  │", told)
    assert "└ 0." in told
    assert "before RL 0.0%, after it 0.0% (95% interval 0.0% – " in told
    first, _, second = told.partition("One task after RL, ")
    tasks = {row["prompt"] for row in read_rows(folder.trajectory_file("evaluation-trained"))}
    assert [all(text.count(task) for text in (first, second)) for task in tasks].count(True) == 1
    *_, look, play, own = told.splitlines()
    assert f" view {folder.path} " in look
    assert " play my.toml " in play
    assert " train examples/" in own
