"""Settings of the machine may change when a run goes on, are written and noted; no others."""

import os
from pathlib import Path

import pytest

from tests.marked import marked
from turnwise.config import dump_recipe, load_recipe
from turnwise.errors import ConfigError, DataError, InfrastructureError
from turnwise.storage.moves import keep_moves, move_sentences, moved_recipe
from turnwise.storage.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "config.toml").write_text(dump_recipe(load_recipe("demo")))
    return RunFolder.open(tmp_path)


@pytest.mark.wing("cluster")
def test_what_has_changed_is_written_and_noted(folder: RunFolder) -> None:
    os.utime(folder.path / "config.toml", (1e9, 1e9))
    offload = "model.gradient_checkpointing=true"
    recipe = moved_recipe(
        folder, ["cluster.learners=4", "threads=8", "cluster.seconds=600", offload]
    )
    assert (recipe.cluster.learners, recipe.threads) == (4, 8)
    keep_moves(folder, recipe, None)
    assert folder.recipe() == recipe
    assert (folder.path / "config.toml").stat().st_mtime == 1e9  # when the run began
    (told,) = move_sentences(folder)
    assert told.startswith(
        "resumed after step 0 with cluster.learners = 4 (before: 1), "
        "model.gradient_checkpointing = true (before: false), threads = 8"
    )
    assert "cluster.seconds" not in told  # it is what it was
    keep_moves(folder, moved_recipe(folder, []), None)
    keep_moves(folder, moved_recipe(folder, ["cluster.learners=4"]), None)
    assert len(move_sentences(folder)) == 1


def test_what_could_not_be_written_is_not_noted(folder: RunFolder) -> None:
    (folder.path / "config.toml.partial").mkdir()
    with pytest.raises(InfrastructureError, match=r"config\.toml cannot be written"):
        keep_moves(folder, moved_recipe(folder, ["threads=8"]), None)
    assert move_sentences(folder) == []


@pytest.mark.parametrize(
    ("override", "message"),
    marked(
        [
            ("train.steps=5", "to train longer, begin another one with its weights"),
            ("cluster=1", "in which cluster stays as it is"),
            ("cluster.lerners=2", "did you mean 'cluster.learners'"),
            ("cluster.learners=0", "cluster.learners"),
            ("cluster.replicas=2", "does not divide cluster.learners"),
            ("cluster.learners", "write key=value"),
        ]
    ),
)
def test_anything_else_is_refused_and_nothing_written(
    folder: RunFolder, override: str, message: str
) -> None:
    before = (folder.path / "config.toml").read_bytes()
    with pytest.raises(ConfigError) as caught:
        moved_recipe(folder, ["threads=3", override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (folder.path / "config.toml").read_bytes() == before


def test_a_damaged_recipe_is_said_to_be_damaged(folder: RunFolder) -> None:
    (folder.path / "config.toml").write_text("name = ")
    with pytest.raises(DataError, match=r"config.toml is damaged"):
        moved_recipe(folder, ["threads=3"])
