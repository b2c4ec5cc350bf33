"""A run that learns nothing says so from the first step: to people, in its log, in its report."""

import json
from pathlib import Path

from tests.small_runs import Listening, train, write_recipe
from turnwise.monitor import no_signal
from turnwise.storage.run_folder import RunFolder

TABLES = """
[rollout]
max_turns = 1
max_turn_tokens = 4
max_tokens = 200
[train]
steps = 7
tasks_per_step = 1
group_size = 2
[evaluation]
tasks = 0
"""


def test_groups_that_are_all_equal_in_every_step(tmp_path: Path) -> None:
    """A random model never names a capital; the run is long enough for an Echo Trap."""
    folder, listener = RunFolder.new(tmp_path / "run"), Listening()
    train(write_recipe(tmp_path, "Capitals", TABLES), folder, "model.device=cpu", display=listener)
    assert listener.said == [f"warning: no learning signal in RL step 1: {no_signal.ALL_EQUAL}"]
    lines = folder.lines("no_signal.jsonl")
    assert lines == [{"step": step, "reason": no_signal.ALL_EQUAL} for step in range(1, 8)]
    report = json.loads((folder.path / "report.json").read_text())
    found = {"steps": 7, "without": 7, "reasons": {no_signal.ALL_EQUAL: 7}}
    assert report["learning_signal"] == found
    assert no_signal.ALL_EQUAL in (folder.path / "report.md").read_text()
