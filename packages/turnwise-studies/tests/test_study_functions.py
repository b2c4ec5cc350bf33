"""The functions of shipped studies: measures of a run's folder, and rewards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.rewards.episodes import answer, episode
from turnwise.environments.registry import make_environment
from turnwise.storage.trajectory_rows import SCHEMA
from turnwise.types import Task, Verdict
from turnwise_studies.shipped import kimi_k2, tool_use


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two questions of each kind; both tools are used in three of eight episodes."""
    options: dict[str, Any] = {"count": 8}
    tasks = make_environment("multi_tool", options).tasks("heldout")
    used = {"none": [1.0, 0.0], "search": [0.0, 0.0], "calculator": [0.0, 0.0], "both": [1.0, 1.0]}
    rows = [
        {"task": task.id, "parts": json.dumps({"both_used": used[task.info["needs"]].pop()})}
        for task in tasks
    ]
    (tmp_path / "trajectories").mkdir()
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, tmp_path / "trajectories" / "evaluation-trained.parquet")
    config = 'name = "x"\n[environment]\nname = "multi_tool"\noptions = { count = 8 }\n'
    (tmp_path / "config.toml").write_text(config)
    return tmp_path


@pytest.mark.wing("environments")
def test_both_tools_where_needed_and_where_not(run: Path) -> None:
    assert tool_use.both_where_needed(run) == 1.0
    assert tool_use.both_where_not_needed(run) == pytest.approx(1 / 6)


@pytest.mark.wing("environments")
def test_both_tools_of_an_evaluation_without_such_questions(run: Path) -> None:
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("8 }", '2, kinds = ["both"] }'))
    tasks = make_environment("multi_tool", {"count": 2, "kinds": ["both"]}).tasks("heldout")
    rows = [{"task": task.id, "parts": '{"both_used": 0.0}'} for task in tasks]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, run / "trajectories" / "evaluation-trained.parquet")
    assert tool_use.both_where_needed(run) == 0.0
    assert tool_use.both_where_not_needed(run) is None


def test_success_at_calculations_alone_is_paid() -> None:
    cases = (("calculator", True, 1), ("calculator", False, 0), ("both", True, 0))
    for needs, right, paid in cases:
        task = Task("x", "What is 2 * 3?", info={"needs": needs})
        played = replace(episode(answer("6")), task=task, verdict=Verdict(1.0, right))
        assert kimi_k2.calculations(played) == paid
