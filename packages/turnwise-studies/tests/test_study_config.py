"""Studies as files: what is wrong in one is a line that says what to do."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from study_fake_runs import write_study
from tests.test_documentation import USER_PAGES, blocks, name
from turnwise.config.loading import check_section
from turnwise.errors import ConfigError
from turnwise_studies.config import StudyConfig, folder_name, load_study, shipped_studies


def test_a_study_is_read_with_its_smallest_form(tmp_path: Path) -> None:
    settings = {"train": {"steps": 1}}
    file = write_study(tmp_path, smallest={"seeds": [7], "settings": settings})
    both = load_study(file), load_study(file, smallest=True)
    assert [(one.seeds, one.topmost) for one in both] == [([0, 1], {}), ([7], settings)]


def test_arms_begin_with_the_cold_start_unless_others_are_named(tmp_path: Path) -> None:
    assert load_study(write_study(tmp_path)).beginning_with_cold_start == []
    every = load_study(write_study(tmp_path, cold_start={}))
    assert every.beginning_with_cold_start == ["one", "two"]
    some = load_study(write_study(tmp_path, cold_start={"arms": ["two"]}))
    assert some.beginning_with_cold_start == ["two"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"seed": [0]}, "did you mean 'seeds'"),
        ({"seeds": [0, 1, 0]}, "seeds has 0 twice"),
        ({"seeds": [-1]}, "seeds of 0 and above"),
        ({"seeds": []}, "at least 1"),
        ({"arms": {}}, "at least 1"),
        ({"arms": {"a b": {}, "a_b": {}}}, "would have one folder, a_b"),
        ({"arms": {"A": {}, "a": {}}}, "would have one folder, a"),
        ({"arms": {"cold start": {}}, "cold_start": {}}, "the cold start would have one folder"),
        ({"arms": {"…": {}}}, "no name of a folder"),
        ({"arms": {"one": {"seed": 3}, "two": {}}}, "arm 'one' has a seed"),
        ({"smallest": {"seeds": [0], "settings": {"seed": 3}}}, "smallest.settings has a seed"),
        ({"effects": [{"metric": "success", "arm": "one", "against": "tow"}]}, "mean 'two'"),
        ({"effects": [{"metric": "sucess", "arm": "one", "against": "two"}]}, "mean 'success'"),
        ({"effects": [{"metric": "success", "arm": "one", "against": "one"}]}, "with itself"),
        ({"effects": [{"metrics": "success"}]}, "effect 1: unknown key 'metrics'"),
        ({"cold_start": {"arms": ["three"]}}, "unknown arm 'three'"),
        ({"metrics": {"m": {}}}, "one of report, series and function"),
        ({"metrics": {"m": {"report": "a", "until": 0.5}}}, "until goes with series"),
        ({"metrics": {"m": {"raport": "a"}}}, "did you mean 'metrics.m.report'"),
        ({"name": "a/b"}, "name is 'a/b'"),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_study(write_study(tmp_path, **changes))
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "it.toml" in str(raised.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_study(str(tmp_path / "nothing.toml"))
    with pytest.raises(ConfigError, match="did you mean 'search_r1'"):
        load_study("search_r2")
    twice = tmp_path / "twice.toml"
    twice.write_text("[arms.one]\n[arms.one]\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_study(str(twice))
    with pytest.raises(ConfigError, match=r"has no \[smallest\]"):
        load_study(write_study(tmp_path), smallest=True)


@pytest.mark.parametrize("page", USER_PAGES, ids=name)
def test_studies_in_the_documentation_are_studies(page: Path) -> None:
    for text in blocks(page, "toml"):
        given = tomllib.loads(text)
        if "arms" in given:
            check_section(StudyConfig, given, name(page))


def test_names_of_folders_and_of_shipped_studies() -> None:
    assert folder_name("turn_rloo, gain") == "turn_rloo_gain"
    assert folder_name("../x y.") == "x_y"
    assert all(load_study(study).config.name == study for study in shipped_studies())
