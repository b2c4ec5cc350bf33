"""Paths in the values of studies and of shipped recipes."""

from pathlib import Path

import pytest

from turnwise.config import read_recipe
from turnwise.config.paths import anchored


def test_paths_that_lead_to_what_is_there_are_made_absolute(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").touch()
    given = {"mine.py:lazy": 1, "a": ["mine.py:f", "data/x", "tiny", "data", "mine.py:", 3]}
    there = (f"{tmp_path}/mine.py:f", f"{tmp_path}/data/x")
    assert anchored(given, tmp_path) == {
        f"{tmp_path}/mine.py:lazy": 1,
        "a": [*there, "tiny", "data", f"{tmp_path}/mine.py:", 3],
    }
    assert anchored("other.py:f", tmp_path) == "other.py:f"
    prose = "and/or, " * 60
    assert anchored([prose, "two\n/lines"], tmp_path) == [prose, "two\n/lines"]


@pytest.mark.wing("environments")
def test_a_file_beside_a_shipped_recipe_is_found_from_anywhere(tmp_path: Path) -> None:
    beside = Path(read_recipe("bandit")["sft"]["demonstrations"]["file"])
    assert beside.is_absolute()
    assert beside.is_file()
    (tmp_path / "there.jsonl").touch()
    own = tmp_path / "own.toml"
    own.write_text('name = "own"\n[sft.demonstrations]\nfile = "there.jsonl"\n')
    assert read_recipe(str(own))["sft"]["demonstrations"]["file"] == "there.jsonl"
