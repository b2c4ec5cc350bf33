"""A judge in a run: as a part of the reward, for preference pairs, and the policy as the judge."""

import json
from pathlib import Path

import pytest

from tests.fakes import save_chat_model
from tests.small_runs import interrupted, resume, train, write_recipe
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.storage.run_folder import RunFolder, with_whole_paths
from turnwise.storage.trajectory_rows import read_rows

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }
judge = { form = "pairwise", model = { kind = "scripted" } }
reward.parts.judge = 0.5
train = { steps = 2, tasks_per_step = 2, group_size = 3, checkpoint_every = 1 }
evaluation.tasks = 2
"""
SCRIPT = """
import json

def letters(text):
    return sum(map(str.isalpha, text))

def more_letters(messages):
    lines = messages[-1]["content"].splitlines()
    data, example = json.loads(lines[1]), json.loads(lines[-1])
    first, second = (letters(str(data[which])) for which in ("first", "second"))
    better = "tie" if first == second else "first" if first > second else "second"
    return json.dumps(example | {"better": better})

def silent(messages):
    return ""
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "script.py").write_text(SCRIPT)
    tables = TABLES.replace(
        'kind = "scripted"', f'kind = "scripted", script = "{folder}/script.py:more_letters"'
    )
    return write_recipe(folder, "Letters", tables)


@pytest.fixture(scope="module")
def whole(recipe: Path) -> RunFolder:
    folder = RunFolder.new(recipe.parent / "run")
    train(recipe, folder)
    return folder


@pytest.mark.long
def test_win_rates_are_a_part_of_the_reward(whole: RunFolder) -> None:
    for step in (1, 2):
        rows = read_rows(whole.path / f"trajectories/step-{step:06d}.parquet")
        rates = [json.loads(row["parts"])["judge"] for row in rows]
        assert [sum(rates[:3]), sum(rates[3:])] == pytest.approx([1.5, 1.5])
        assert [row["reward"] for row in rows] == pytest.approx([0.5 * rate for rate in rates])
        assert len(set(rates)) > 1
    timing = whole.lines("timing.jsonl")[-1]
    assert timing["judge/comparisons"] == 12
    assert 0 < timing["judge/calls"] <= 24
    assert timing["judge/position_bias"] == 0.0
    assert "judge/calls" not in whole.lines("metrics.jsonl")[-1], "equal runs have equal metrics"
    rows = read_rows(whole.path / "trajectories/evaluation-trained.parquet")
    assert "judge" not in json.loads(rows[0]["parts"]), "nothing is compared in evaluations"


@pytest.mark.long
def test_a_run_that_goes_on_asks_nothing_again(whole: RunFolder, tmp_path: Path) -> None:
    folder = interrupted(whole, tmp_path / "run", "step-000002")
    resume(folder)
    assert folder.lines("metrics.jsonl") == whole.lines("metrics.jsonl")
    assert folder.lines("timing.jsonl")[-1]["judge/calls"] == 0
    answers = (whole.path / "judge.jsonl").read_text()
    assert (folder.path / "judge.jsonl").read_text() == answers


@pytest.mark.long
def test_a_judge_that_says_nothing_stops_the_run(recipe: Path, tmp_path: Path) -> None:
    silent = f"judge.model.script={recipe.parent}/script.py:silent"
    with pytest.raises(RunStoppedError, match="judge"):
        train(recipe, RunFolder.new(tmp_path / "run"), silent)


@pytest.mark.long
def test_scores_count_in_evaluations_too(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    changes = ("judge=pointwise", "judge.high=2", "judge.model.script=", "reward.parts.judge=0.25")
    train(recipe, folder, *changes)
    for name in ("step-000001", "evaluation-trained"):
        rows = read_rows(folder.path / f"trajectories/{name}.parquet")
        assert [json.loads(row["parts"])["judge"] for row in rows] == [1.0] * len(rows)
        assert {row["reward"] for row in rows} == {0.25}


def test_a_cache_of_several_runs_is_found_again_from_anywhere(recipe: Path) -> None:
    loaded = load_recipe(str(recipe), ["judge.cache=kept"])
    kept = with_whole_paths(loaded).judge
    assert kept.cache == str(Path("kept").resolve())


@pytest.mark.long
def test_preference_pairs_by_a_judge(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    pairs = ("preferences.steps=1", "preferences.pairs=2", "preferences.batch_size=1")
    train(recipe, folder, *pairs, "preferences.by=judge", "train.steps=0", "reward=false")
    rows = read_rows(folder.path / "trajectories/preferences.parquet")
    assert {row["reward"] for row in rows} <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert sum(row["reward"] for row in rows) == pytest.approx(3.0)
    assert len(folder.lines("preferences.jsonl")) == 1
    assert (folder.path / "judge.jsonl").is_file()


def test_what_cannot_work_is_refused_before_anything_is_loaded(
    recipe: Path, tmp_path: Path
) -> None:
    for change, message in (
        ("reward.parts.judge=2", "parts can outvote success"),
        ("judge.model=policy", "no chat template"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(recipe, RunFolder.new(tmp_path / "run"), change)


@pytest.mark.long
def test_the_policy_judges_itself_in_lockstep(recipe: Path, tmp_path: Path) -> None:
    """A random model gives no judgement; here it is about being asked, which would wait for ever if
    an episode were open."""
    model = save_chat_model(tmp_path / "model")
    folder = RunFolder.new(tmp_path / "run")
    asked = ("judge.model=policy", "judge.model.max_tokens=16", "judge.max_characters=400")
    room = ("judge.seconds=100", "rollout.max_tokens=1000", "rollout.max_ungraded_share=1")
    few = ("train.steps=1", "evaluation.tasks=0")
    train(recipe, folder, f"model.name={model}", *asked, *room, *few)
    timing = folder.lines("timing.jsonl")[-1]
    assert timing["judge/calls"] == timing["judge/malformed"] > 0
    assert timing["judge/late"] == timing["judge/unreachable"] == 0
    assert timing["judge/missing"] * 2 == timing["judge/calls"]
    assert folder.lines("metrics.jsonl")[-1]["outcome/grader_error"] == 6
