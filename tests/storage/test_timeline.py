"""A step's times on disk."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.test_run_folder import begun
from turnwise.errors import DataError
from turnwise.storage import timeline
from turnwise.storage.timeline import MOST_SPANS, read_timeline, timeline_table
from turnwise.times import Doing, EpisodeTimes, Span
from turnwise.types import Group, Task, Trajectory

TASK = Task("t", "?")


def played(episode: int, times: EpisodeTimes | None) -> Trajectory:
    return Trajectory(TASK, "g", episode, seed=1, times=times)


def group(*episodes: Trajectory) -> Group:
    return Group("g", episodes)


def test_spans_are_written_with_their_process_and_read_back(tmp_path: Path) -> None:
    """By the clock since 1970, whatever clock they were taken by; an episode without times, such as
    one that was cancelled, has no row."""
    now = time.monotonic()
    spans = (Span(Doing.SAMPLING, 0.0, 0.5), Span(Doing.TOOLS, 0.5, 2.0))
    episodes = group(
        played(0, EpisodeTimes(now - 10, 3.0, spans, "worker 1 (process 7 on a)")), played(1, None)
    )
    folder = begun(tmp_path)
    folder.write_timeline(4, [episodes], [("update", now - 2, now)])
    rows = read_timeline(folder.timeline_file(4)).to_pylist()
    assert [(row["process"], row["kind"], row["episode"]) for row in rows] == [
        ("learner", "update", None),
        ("worker 1 (process 7 on a)", "episode", 0),
        ("worker 1 (process 7 on a)", "sampling", 0),
        ("worker 1 (process 7 on a)", "tools", 0),
    ]
    assert [row["seconds"] for row in rows] == [2.0, 3.0, 0.5, 1.5]
    assert rows[3]["start"] - rows[1]["start"] == pytest.approx(0.5)
    assert rows[0]["start"] == pytest.approx(time.time() - 2, abs=60)
    assert read_timeline(folder.timeline_file(5)).num_rows == 0
    folder.forget_trajectories(3)
    assert not folder.timeline_file(4).exists()


def test_a_file_is_bounded_whatever_an_episode_does() -> None:
    """Where there are too many spans, each episode has one."""
    few, many = ((Span(Doing.TOOLS, 0.0, 1e-3),) * count for count in (2, MOST_SPANS // 2))
    kinds = [
        timeline_table([group(*(played(n, EpisodeTimes(0.0, 1.0, spans)) for n in (0, 1)))], [])[
            "kind"
        ].to_pylist()
        for spans in (few, many)
    ]
    assert kinds == [["episode", "tools", "tools"] * 2, ["episode"] * 2]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "step-000001.parquet"
    damaged.write_bytes(b"PAR1 not a table")
    with pytest.raises(DataError, match=r"step-000001\.parquet cannot be read"):
        read_timeline(damaged)
    pq.write_table(pa.table({"other": [1]}), damaged)
    assert read_timeline(damaged).schema == timeline.SCHEMA
