"""Runs that learn from preference pairs: they go on exactly from any checkpoint."""

import json
from pathlib import Path

import pytest

from tests import small_runs
from tests.small_runs import assert_same, interrupted, write_recipe
from tests.training.test_stages import TABLES, resume, train
from turnwise.errors import DataError

PREFERENCES = (
    *("train.steps=1", "preferences.steps=3", "preferences.pairs=3"),
    *("preferences.batch_size=2", "preferences.learning_rate=1e-3"),
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Letters", TABLES)


@pytest.mark.slow
def test_a_run_with_preferences_goes_on_exactly(recipe: Path, tmp_path: Path) -> None:
    whole = train(recipe, tmp_path / "whole", *PREFERENCES)
    lines = whole.lines("preferences.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[0]["preferences/loss"] != lines[2]["preferences/loss"]
    evaluation = whole.evaluation("trained")
    assert evaluation["step"] == 1 + 3
    steps = [f"preferences/step-00000{step}" for step in range(4)]
    after = interrupted(whole, tmp_path / "late", *steps[2:])
    assert_same(whole, resume(after), steps[3])
    before = interrupted(whole, tmp_path / "early", "preferences")
    assert_same(whole, resume(before), steps[3])
    finished = interrupted(whole, tmp_path / "finished")
    assert_same(whole, resume(finished), steps[3])


@pytest.mark.long
def test_groups_that_are_all_equal_give_no_preferences(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said, not passed over in silence; the rest of the run is as without them."""
    capitals = f"environment.name={small_runs.FAKES}:Capitals"
    run = train(recipe, tmp_path / "run", *PREFERENCES, capitals)
    assert "no preferences" in " ".join(capsys.readouterr().err.split())
    assert run.lines("preferences.jsonl") == []
    assert json.loads((run.path / "report.json").read_text())["trained"]["n"] == 2


@pytest.mark.long
def test_pairs_of_a_file_take_the_place_of_sampled_ones(recipe: Path, tmp_path: Path) -> None:
    """The policy comes to prefer what the file prefers; nothing is sampled for it."""
    prompt = [{"role": "user", "content": "word"}]
    pair = {"chosen": "yes", "rejected": "no"}
    said = {name: [{"role": "assistant", "content": text}] for name, text in pair.items()}
    file = tmp_path / "pairs.jsonl"
    with pytest.raises(DataError, match=r"preferences.file: there is no .*pairs"):
        train(recipe, tmp_path / "early", *PREFERENCES, f"preferences.file={file}")
    assert not (tmp_path / "early" / "config.toml").exists()
    file.write_text(json.dumps({"prompt": prompt, **said}) + "\n")
    alone = ("train.steps=0", f"preferences.file={file}")
    whole = train(recipe, tmp_path / "whole", *PREFERENCES, *alone)
    margins = [line["preferences/margin"] for line in whole.lines("preferences.jsonl")]
    assert margins[0] == 0.0
    assert margins[2] > margins[1] > 0.0
    assert not (whole.path / "trajectories" / "preferences.parquet").exists()
    last = [f"preferences/step-00000{step}" for step in (2, 3)]
    assert_same(whole, resume(interrupted(whole, tmp_path / "late", *last)), last[1])
    file.write_text("{}\n")
    with pytest.raises(DataError, match='has no "chosen"'):
        train(recipe, tmp_path / "none", *PREFERENCES, f"preferences.file={file}")
