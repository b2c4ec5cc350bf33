"""The model that an earlier cold start was made of, evaluated beside what a run makes of it."""

from pathlib import Path

import pytest

from tests import small_runs
from tests.fakes import save_small_model
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
train = { steps = 0 }
evaluation = { tasks = 2, temperature = 0 }
"""


@pytest.mark.long
def test_the_base_is_the_other_model_and_the_rest_the_runs_own(tmp_path: Path) -> None:
    recipe = small_runs.write_recipe(tmp_path, "Letters", TABLES)
    other = save_small_model(tmp_path / "other", seed=1)

    def played(name: str, *changes: str) -> list[list[list[int]]]:
        run = small_runs.train(recipe, RunFolder.new(tmp_path / name), *changes)
        files = [run.folder.trajectory_file(f"evaluation-{name}") for name in ("base", "trained")]
        return [[row["ids"] for row in read_rows(file)] for file in files]

    (own, _), (others, _) = (
        played("own", "evaluation.base=true"),
        played("others", "evaluation.base=true", f"model.name={other}"),
    )
    assert own != others
    assert played("both", f"evaluation.base={other}") == [others, own]


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    recipe = small_runs.write_recipe(tmp_path, "Letters", TABLES)
    with pytest.raises(ConfigError, match="base is tiny, which differs from the run's"):
        small_runs.train(recipe, RunFolder.new(tmp_path / "run"), "evaluation.base=tiny")
