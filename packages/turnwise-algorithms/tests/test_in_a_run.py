"""The loop with rollouts that are more than independent episodes: it goes on exactly, and what
cannot work is refused before anything is written."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.fakes import save_small_model
from tests.small_runs import FAKES, Listening, prepared, train, write_recipe
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import Source

TABLES = """
engine.max_sequences = 8
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }
learning.learning_rate = 1e-3
train = { steps = 2, tasks_per_step = 2, group_size = 8 }
evaluation.tasks = 0
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Restorable", TABLES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        "tree_grpo",
        "counterfactual",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("remax", "hca", "igpo", "score_centering", "fresh_replay", "paw", "mipu")
        ),
    ],
)
def test_a_run_that_was_stopped_goes_on_exactly(
    recipe: Path, tmp_path: Path, algorithm: str
) -> None:
    chosen = [f"algorithm.name={algorithm}"]
    if algorithm == "counterfactual":
        chosen.append("algorithm.replays=1")
    if algorithm == "mipu":
        chosen.append("algorithm.tolerance=9")  # each step is to make its update
    whole, stopped = RunFolder.new(tmp_path / "whole"), RunFolder.new(tmp_path / "stopped")
    train(recipe, whole, *chosen)
    train(recipe, stopped, *chosen, "train.steps=1")
    train(recipe, RunFolder.open(stopped.path), *chosen)
    lines = whole.lines("metrics.jsonl")
    assert [line["policy/updates"] for line in lines] == [1.0] * 2
    assert [line["rollout/episodes"] for line in lines] == [16.0] * 2
    assert lines == stopped.lines("metrics.jsonl")
    assert all(("information/answer" in line) is (algorithm == "igpo") for line in lines)
    weights = [
        load_file(run.checkpoints / "step-000002" / "model.safetensors") for run in (whole, stopped)
    ]
    for key, array in weights[0].items():
        assert array.tobytes() == weights[1][key].tobytes(), key
    rows = read_rows(whole.path / "trajectories" / "step-000002.parquet")
    branched = any(Source.INHERITED in row["source"] for row in rows)
    assert branched is (algorithm == "tree_grpo")
    assert branched is any(row["first_turn"] > 0 for row in rows)
    assert ("baseline_rollouts/episodes" in lines[0]) is (algorithm in ("remax", "counterfactual"))


@pytest.mark.long
@pytest.mark.wing("environments")
def test_environments_have_teachers_of_their_own(recipe: Path, tmp_path: Path) -> None:
    chosen = [
        "algorithm.name=distillation",
        *("environment.name=joint", "train.group_size=2", "rollout.max_turns=1"),
        f"environment.options.environments.letters.name={FAKES}:Letters",
        f"environment.options.environments.capitals.name={FAKES}:Capitals",
        *(
            f"algorithm.teacher.model.{name}={save_small_model(tmp_path / name, seed=seed)}"
            for seed, name in enumerate(("letters", "capitals"), 1)
        ),
    ]
    folder = RunFolder.new(tmp_path / "run")
    train(recipe, folder, *chosen)
    for line in folder.lines("metrics.jsonl"):
        assert line["policy/updates"] == 1
        shares = {name: line.get(f"environment/{name}/share") for name in ("letters", "capitals")}
        for name, share in shares.items():
            assert (f"teacher/{name}/reverse_kl" in line) is (share is not None)


def test_what_cannot_work_is_refused(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"has no snapshot\(\)"):
        prepared(recipe, folder, "algorithm.name=arpo", f"environment.name={FAKES}:Letters")
    assert not folder.path.exists()


@pytest.mark.long
def test_groups_of_one_where_nothing_is_compared_in_them(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    train(recipe, folder, "algorithm.name=remax", "train.group_size=1", "train.steps=1")
    (line,) = folder.lines("metrics.jsonl")
    assert line["rollout/episodes"] == line["baseline_rollouts/episodes"] == 2.0
    assert line["policy/updates"] == 1.0
    (timing,) = folder.lines("timing.jsonl")
    sampled = line["rollout/tokens_sampled"] + line["baseline_rollouts/tokens_sampled"]
    rate = timing["rollout/sampled_tokens_per_second"]
    assert rate * timing["seconds/rollout"] == pytest.approx(sampled)


@pytest.mark.long
def test_a_run_begins_with_what_is_to_be_known_of_its_algorithm(
    recipe: Path, tmp_path: Path
) -> None:
    folder, display = RunFolder.new(tmp_path / "run"), Listening()
    train(recipe, folder, "algorithm.name=sapo", "train.steps=1", display=display)
    told = "algorithm sapo differs by what it does with importance"
    assert any(told in line for line in display.said)
