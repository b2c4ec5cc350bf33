"""Task sets: both ways of having tasks, and how they are split."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from turnwise.environments.base import Environment
from turnwise.environments.tasksets import SPLITS, Draft, TaskFile, TaskSet, drafted, every
from turnwise.errors import ConfigError, DataError
from turnwise.seeds import derive
from turnwise.types import Task, Trajectory, Verdict


def draft(number: int) -> Draft | None:
    """Sevens are no drafts, those that 5 divides are not sound, and each comes twice."""
    key = str(number // 2)
    if number // 2 % 7 == 0:
        return None
    return Draft(key, lambda: Task(f"{number}", f"{key}?") if number // 2 % 5 else None)


def test_tasks_are_made_of_the_first_sound_drafts() -> None:
    made = TaskSet.made("own", drafted(draft), 6)
    assert [len(made.tasks[split]) for split in SPLITS] == [6, 6]
    for split, task in every(made.tasks):
        key = task.prompt.removesuffix("?")
        assert task.id == str(2 * int(key)), "the first of both drafts"
        assert SPLITS[derive("split", key) % 2] == split
        assert int(key) % 7
        assert int(key) % 5


def test_a_draft_is_not_made_where_there_is_no_room() -> None:
    made: list[int] = []

    def one(number: int) -> Draft:
        def make() -> Task:
            made.append(number)
            return Task(str(number), "?")

        return Draft(str(number), make, split_key="always the same" if number < 50 else "")

    assert len(list(every(TaskSet.made("own", drafted(one), 2).tasks))) == 4
    assert len(made) == 4


def test_too_few_drafts_are_a_line() -> None:
    with pytest.raises(ConfigError, match="own: there are only about 0 such tasks: lower count"):
        TaskSet.made("own", drafted(draft, 2), 1)


def read(record: Mapping[str, Any], where: str) -> Task | str:
    if "why" in record:
        return str(record["why"])
    return Task(record["id"], record["prompt"])


def write(path: Path, *records: Mapping[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_tasks_are_read_once_each_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    rows = [{"id": str(number), "prompt": "?"} for number in range(40)]
    path = write(tmp_path / "a.jsonl", *rows, *rows[:3], {"why": "odd"}, {"why": "odd"})
    found = TaskSet.read(TaskFile(path, heldout_share=0.25), read)
    assert sorted(task.id for _, task in every(found.tasks)) == sorted(row["id"] for row in rows)
    assert 0 < len(found.tasks["heldout"]) < len(found.tasks["train"])
    assert found.warnings == ["2 records were left out: odd"]
    more = TaskSet.read(TaskFile(path, heldout_share=0.5), read)
    assert {task.id for task in found.tasks["heldout"]} < {
        task.id for task in more.tasks["heldout"]
    }, "a task's own content decides"
    assert len(found.digest) == 64
    assert found.digest != more.digest


def test_a_file_of_which_nothing_is_left_is_a_line(tmp_path: Path) -> None:
    source = TaskFile(write(tmp_path / "a.jsonl", {"why": "odd"}))
    with pytest.raises(DataError, match="no records in it; 1 records were left out: odd"):
        TaskSet.read(source, read)


def test_a_number_with_more_digits_than_python_reads_voids_its_line_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"id": {"1" * 5000}}}\n{{"id": 2, "prompt": "?"}}\n')
    found = TaskSet.read(TaskFile(str(file)), read)
    assert [task.id for _, task in every(found.tasks)] == ["2"], "an id that is a number"
    assert "line 1: a number has more digits" in found.warnings[0]


class Words(Environment):
    """An environment of a user's own that reads a file."""

    def __init__(self, tasks: TaskFile) -> None:
        self.task_set = TaskSet.read(tasks, read, reference_scores={"noop": 0.5})

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(0.0, False)


def test_the_spec_of_an_environment_is_that_of_its_task_set(tmp_path: Path) -> None:
    words = Words(TaskFile(write(tmp_path / "a.jsonl", {"id": "a", "prompt": "?"}), 1.0))
    assert [task.id for task in words.tasks("heldout")] == ["a"]
    assert (words.spec.name, words.spec.version) == ("words", "0")
    assert words.spec.data_hash == words.task_set.digest
    assert words.spec.reference_scores == {"noop": 0.5}
