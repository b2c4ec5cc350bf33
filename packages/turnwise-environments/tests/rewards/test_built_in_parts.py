"""A run whose reward is of built-in parts: of episodes, of turns, of groups."""

import json
from pathlib import Path

import pytest

from tests.small_runs import train, write_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows

WEIGHTS = {
    "format": 0.1,
    "repetition": -0.1,
    "length": -0.2,
    "budget": -0.05,
    "needless_calls": -0.1,
    "confidence": 0.1,
    "majority": 0.2,
    "clusters": 0.1,
}
TABLES = f"""
[engine]
max_sequences = 8
[rollout]
max_turns = 2
max_turn_tokens = 8
max_tokens = 400
[reward]
outcome = 3.0
[reward.parts]
malformed = -0.25
{"".join(f"{name} = {weight}{chr(10)}" for name, weight in WEIGHTS.items())}
[algorithm]
name = "turn_rloo"
[train]
steps = 1
tasks_per_step = 2
group_size = 4
[evaluation]
tasks = 2
"""


@pytest.mark.long
def test_a_run_with_built_in_parts(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    train(write_recipe(tmp_path, "Reporting", TABLES), folder)
    rows = read_rows(folder.path / "trajectories" / "step-000001.parquet")
    assert len(rows) == 8
    for row in rows:
        parts, broken = json.loads(row["parts"]), json.loads(row["turn_parts"])["malformed"]
        assert WEIGHTS.keys() <= parts.keys()
        assert 0 < parts["confidence"] < 1
        assert 0 < parts["length"] < 1
        assert len(broken) == len(row["turn_rewards"])
        wanted = sum(weight * parts[name] for name, weight in WEIGHTS.items())
        wanted += 3.0 * row["success"] + -0.25 * sum(broken)
        assert row["reward"] == pytest.approx(wanted, abs=1e-6)
