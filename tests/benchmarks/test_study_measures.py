"""Measures of the studies of benchmarks: votes as the reward counts them, and their split."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from studies import measures

from turnwise.storage.trajectory_rows import SCHEMA

RIGHT = {"answer": "The Socket", "success": True}
WRONG = {"answer": "ssl", "success": False}
NONE: dict[str, Any] = {"answer": None, "success": False}


def write(folder: Path, evaluation: str, tasks: dict[str, list[dict[str, Any]]]) -> None:
    rows = [{"task": task, **episode} for task, found in tasks.items() for episode in found]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, folder / "trajectories" / f"evaluation-{evaluation}.parquet")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "config.toml").write_text('name = "x"\n[environment]\nname = "search"\n')
    write(tmp_path, "cold_start", {"easy": [RIGHT, RIGHT, WRONG], "hard": [WRONG, WRONG, RIGHT]})
    write(tmp_path, "trained", {"easy": [WRONG] * 4, "hard": [RIGHT, RIGHT, RIGHT, WRONG]})
    lines = [{"step": step, "rollout/tool_calls": step / 10} for step in range(1, 11)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_the_first_of_equally_many_votes_wins_and_no_answer_is_no_vote() -> None:
    assert measures.vote([NONE, NONE, NONE, RIGHT, WRONG]).right
    assert not measures.vote([WRONG, RIGHT, NONE, NONE]).right
    votes = measures.vote([WRONG, {**RIGHT, "answer": "socket"}, RIGHT, NONE])
    assert (votes.right, votes.agreement, votes.answers, votes.success) == (True, 0.5, 2, 0.5)
    assert not measures.vote([NONE]).right


def test_tasks_are_split_by_the_majority_before_training(run: Path) -> None:
    assert measures.success_where_wrong(run) == 0.75
    assert measures.success_where_right(run) == 0
    assert measures.agreement_where_wrong(run) == 0.75
    assert measures.agreement(run) == 0.875
    assert measures.answers(run) == 1.5
    write(run, "cold_start", {"easy": [WRONG], "hard": [WRONG]})
    assert measures.success_where_right(run) is None


def test_the_distance_from_the_limit_is_of_the_last_steps(run: Path) -> None:
    assert measures.distance_from_limit(run) == pytest.approx(0)
