"""Brackets in brackets: a file or an answer that no parser can follow is one line, not a crash."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise.chat.recording import Recording
from turnwise.config import load_recipe, parse_override
from turnwise.environments.records import read_each
from turnwise.environments.search.cache import _read as read_cache
from turnwise.errors import UserError
from turnwise.scaffolds.text import arguments_of
from turnwise.tools.tool import Tool, tool
from turnwise_environments.adapters.dockerfile import read_dockerfile
from turnwise_environments.adapters.harbor import read_tasks
from turnwise_environments.code.tasks import _parameters
from turnwise_environments.desk.own_tools import read_tables
from turnwise_environments.repair.instances import _names
from turnwise_environments.rewards.cells import cells_match
from turnwise_sandbox.sandbox import Sandbox

DEEP = 100_000 * "["


class Mine:
    @tool
    def add(self, left: int) -> str:
        """Add."""
        return str(left)


def harbor(path: Path) -> object:
    path.rename(path.parent / "task.toml").write_text(f"a = {DEEP}")
    return read_tasks(path.parent, Sandbox())


def terminal_bench(path: Path) -> object:
    path.rename(path.parent / "task.yaml").write_text(DEEP[:1000])  # more takes seconds
    return read_tasks(path.parent, Sandbox())


def recipe(path: Path) -> object:
    path.write_text(f"a = {DEEP}")
    return load_recipe(str(path.rename(path.with_suffix(".toml"))))


REFUSED: dict[str, Callable[[Path], Any]] = {
    "records": lambda path: read_each(path, lambda record, where: record),
    "lines": lambda path: read_each(
        path.rename(path.with_suffix(".jsonl")), lambda record, where: record
    ),
    "tables": read_tables,
    "tests of an instance": lambda path: _names({"FAIL_TO_PASS": DEEP}, "FAIL_TO_PASS", "line 1"),
    "a program": lambda path: _parameters(DEEP, "f", "line 1"),
    "a recipe": recipe,
    "an override": lambda path: parse_override(f"train.steps={DEEP}"),
    "a task of Harbor": harbor,
    "a task of Terminal-Bench": terminal_bench,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_of_brackets_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(DEEP)
    with pytest.raises(UserError) as error:
        REFUSED[name](path)
    assert "\n" not in str(error.value).strip()


def test_what_can_be_made_again_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text(DEEP)
    assert read_cache(path) is None
    assert Recording(path, "the user").get("any") is None


def test_an_answer_of_brackets_is_the_agents_mistake() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        arguments_of(Tool.of(Mine().add), DEEP)
    assert not cells_match(DEEP, ["1"])
    steps = read_dockerfile(f"FROM a\nRUN {DEEP}\n").steps
    assert steps[0].words == (DEEP,)
