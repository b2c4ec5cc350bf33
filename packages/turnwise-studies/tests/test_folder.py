"""What an earlier call has left of a study: kept, refused by name, or taken away."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from study_fake_runs import write_study
from turnwise.config.section import IS_MODEL
from turnwise.errors import ConfigError, DataError
from turnwise.storage.run_folder import RunFolder
from turnwise_studies.config import Study, load_study
from turnwise_studies.folder import (
    check_folder,
    clear,
    differences,
    is_begun,
    is_finished,
    prepare_folder,
    weights_at_end,
)
from turnwise_studies.plan import planned_runs

ARMS: dict[str, Any] = {"one": {}, "two": {"learning": {"mask_observations": False}}}


def written(folder: Path, **changes: Any) -> Study:
    cold: dict[str, Any] = {"seeds": [0], "arms": ARMS, "cold_start": {}}
    return load_study(write_study(folder, **cold | changes))


def test_runs_with_the_same_settings_are_kept_and_others_named(tmp_path: Path) -> None:
    study, out = written(tmp_path), tmp_path / "out"
    runs = planned_runs(study)
    prepare_folder(study, out)
    for run in runs:
        learning = run.recipe.learning.model_copy(update={"compute_dtype": "float32"})
        chosen = run.recipe.model_copy(update={"learning": learning})
        RunFolder.new(out / run.name).begin(chosen)
    assert is_begun(out / "one-0")
    assert not is_finished(out / "one-0")
    check_folder(study, out, runs)
    changed = written(tmp_path, arms={"one": {}, "two": {"train": {"steps": 9}}})
    with pytest.raises(ConfigError) as raised:
        check_folder(changed, out, planned_runs(changed))
    said = "learning.mask_observations False, now True, train.steps 200, now 9"
    assert f"other settings, 2 others can be kept: two-0 ({said})" in str(raised.value)


def test_weights_of_the_cold_start_are_no_difference_and_another_base_is(tmp_path: Path) -> None:
    cold, one, _ = planned_runs(written(tmp_path))
    weights = f"/elsewhere/{one.after}/checkpoints/cold_start/step-000001"
    model = one.recipe.model.model_copy(update={"name": weights})
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(one.recipe.model_copy(update={"model": model}))
    assert differences(one, folder, tmp_path) == []
    changed = [f"model.name {weights!r}, now 'tiny'"]
    assert differences(replace(one, after=None), folder, tmp_path) == changed
    assert differences(replace(one, after="another"), folder, tmp_path) == changed
    assert "train.steps 200, now 0" in differences(cold, folder, tmp_path)


def test_weights_of_a_named_arm_are_no_difference_and_its_other_settings_are(
    tmp_path: Path,
) -> None:
    arms: dict[str, Any] = {"one": {}, "two": {"evaluation": {"base": "arm:one"}}}
    study, out = written(tmp_path, arms=arms), tmp_path / "out"
    for run in planned_runs(study):
        weights = f"/elsewhere/{run.models.get('arm:one')}/checkpoints/step-000002"
        resolved = run.recipe.with_texts(IS_MODEL, {"arm:one": weights}.get)
        RunFolder.new(out / run.name).begin(resolved if run.models else run.recipe)
    check_folder(study, out, planned_runs(study))
    changed = written(tmp_path, arms=arms | {"one": {"train": {"steps": 9}}})
    with pytest.raises(
        ConfigError, match=r"one-0 \(train.steps 200, now 9\); two-0 \(needs one-0\)"
    ):
        check_folder(changed, out, planned_runs(changed))


@pytest.mark.parametrize("old", ["gone", "the same", "another"])
def test_a_study_that_was_moved_keeps_its_runs_unless_a_file_beside_it_is_another(
    tmp_path: Path, old: str
) -> None:
    before, now, out = tmp_path / "before", tmp_path / "now", tmp_path / "out"
    before.mkdir()
    (before / "own.py").write_text("def brief(trajectory):\n    return 0.5\n")
    part = {"use": "own.py:brief", "range": [0, 1]}
    shares = {"faithful": 0.5, "own.py:brief": 0.5}
    changes = {
        "reward": {"parts": {"brief": part}},
        "sft": {"demonstrations": {"behaviours": shares}},
    }
    settings: dict[str, object] = {"settings": changes, "arms": {"one": {}}}
    (run,) = planned_runs(written(before, **settings))[1:]
    RunFolder.new(out / run.name).begin(run.recipe)
    if old == "gone":
        before.rename(now)
    else:
        shutil.copytree(before, now)
    if old == "another":
        (now / "own.py").write_text("def brief(trajectory):\n    return 1.0\n")
    study = written(now, **settings)
    if old != "another":
        check_folder(study, out, planned_runs(study))
        return
    with pytest.raises(ConfigError, match=r"reward.parts.brief.use '.*before/own.py:brief', now"):
        check_folder(study, out, planned_runs(study))


def test_a_folder_is_of_one_study(tmp_path: Path) -> None:
    study, out = written(tmp_path), tmp_path / "out"
    prepare_folder(study, out)
    other = written(tmp_path, name="other")
    with pytest.raises(ConfigError, match="was begun as the study 'it'"):
        check_folder(other, out, planned_runs(other))
    (out / "study.toml").write_text("name = ")
    with pytest.raises(DataError, match="damaged"):
        check_folder(study, out, planned_runs(study))


def test_a_run_that_was_ended_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    unbegun, own = tmp_path / "unbegun", tmp_path / "own"
    (unbegun / "trajectories").mkdir(parents=True)
    (unbegun / "config.toml.partial").touch()
    own.mkdir()
    (own / "notes.txt").touch()
    for folder in (unbegun, own, tmp_path / "nothing"):
        clear(folder)
    assert not unbegun.exists()
    assert own.exists()


def test_a_cold_start_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no checkpoint: delete"):
        weights_at_end(tmp_path, "cold_start-0")
    (tmp_path / "cold_start-0/checkpoints/cold_start/step-000009").mkdir(parents=True)
    assert weights_at_end(tmp_path, "cold_start-0").name == "step-000009"
