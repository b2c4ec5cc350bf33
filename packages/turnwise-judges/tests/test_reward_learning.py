"""A run with a reward model: its stage, its data, exact resume, evaluation, and what is refused."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.small_runs import Listening, interrupted, resume, train, write_recipe
from turnwise.commands.cli import main
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, DataError
from turnwise.parts.components import build_components
from turnwise.storage.checkpoint import latest, load
from turnwise.storage.run_folder import RunFolder, with_whole_paths
from turnwise.storage.tensors import read
from turnwise.storage.trajectory_rows import read_rows
from turnwise_judges.reward_model.data import read_lessons
from turnwise_judges.reward_model.model import Lesson

TABLES = """
engine.max_sequences = 8
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }
train = { steps = 2, tasks_per_step = 2, group_size = 3, checkpoint_every = 1 }
evaluation = { tasks = 3, episodes_per_task = 2, temperature = 1.0 }
"""
MODEL = (
    *("reward_model.steps=3", "reward_model.batch_size=4", "evaluation.best_of=reward_model"),
    *("reward.parts.reward_model=0.5", "reward.failure=-1"),
)
BESIDE, BEST = "reward_model.beside_policy=true", "keep_best=true"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Commands set the threads of this process, and sums are compared bit by bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Levels", TABLES)


@pytest.fixture(scope="module")
def data(recipe: Path) -> str:
    """A run whose episodes a reward model learns from."""
    folder = RunFolder.new(recipe.parent / "data")
    train(recipe, folder, "train.steps=4", "evaluation.tasks=0", "evaluation.episodes_per_task=1")
    return f'reward_model.data=["{folder.path}"]'


@pytest.fixture(scope="module")
def whole(recipe: Path, data: str) -> RunFolder:
    """A run whose reward model goes on learning."""
    folder = RunFolder.new(recipe.parent / "whole")
    train(recipe, folder, data, *MODEL, BESIDE)
    return folder


def parts(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    rows = read_rows(folder.path / f"trajectories/{name}.parquet")
    return [json.loads(row["parts"]) for row in rows]


@pytest.mark.long
def test_a_run_trains_it_first_and_is_rewarded_by_it(whole: RunFolder) -> None:
    assert [line["step"] for line in whole.lines("reward_model.jsonl")] == [1, 2, 3]
    found = json.loads((whole.path / "reward_model.json").read_text())
    assert found["form"] == "outcome"
    assert found["trained_on"] + found["heldout"] == 24
    rows = read_rows(whole.path / "trajectories/step-000001.parquet")
    for row in rows:
        number = json.loads(row["parts"])["reward_model"]
        assert 0 < number < 1
        assert row["reward"] == pytest.approx((1 if row["success"] else -1) + 0.5 * number)
    assert "reward/parts/reward_model" in whole.lines("metrics.jsonl")[0]


@pytest.mark.long
def test_it_is_updated_beside_the_policy(whole: RunFolder) -> None:
    assert all("reward_model/loss" in line for line in whole.lines("metrics.jsonl"))
    saved = latest(whole.checkpoints / "reward_model"), latest(whole.checkpoints)
    states = [read(load(folder).learner["reward_model"]) for folder in saved if folder is not None]
    before, after = (state["weights"]["head.weight"] for state in states)
    assert not before.equal(after)


@pytest.mark.long
@pytest.mark.parametrize("lost", [("step-000002",), ("step-000001", "step-000002")])
def test_a_run_that_goes_on_ends_the_same_and_needs_no_data_any_more(
    whole: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...]
) -> None:
    monkeypatch.setattr("turnwise_judges.reward_model.stage.read_lessons", None)
    folder = interrupted(whole, tmp_path / "run", *lost)
    resume(folder)
    assert folder.lines("metrics.jsonl") == whole.lines("metrics.jsonl")
    assert folder.lines("reward_model.jsonl") == whole.lines("reward_model.jsonl")
    assert parts(folder, "evaluation-trained") == parts(whole, "evaluation-trained")


@pytest.mark.long
def test_the_best_of_k_is_reported(whole: RunFolder) -> None:
    summary = whole.evaluation("trained")
    best = summary["best@k"]
    assert summary["best_by"] == "reward_model"
    assert best["1"]["mean"] == summary["pass@k"]["1"]["mean"]
    assert best["2"]["mean"] <= summary["pass@k"]["2"]["mean"]
    report = (whole.path / "report.md").read_text()
    assert "best of k by reward_model" in report
    assert "reward model (outcome), 3 steps; grpo, 2 steps" in report


@pytest.mark.long
def test_an_evaluation_of_the_run_has_the_model_as_it_ended(
    whole: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", str(whole.path)])
    assert "best@2 by reward_model" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("form", ["process", "pairs"])
def test_other_forms(recipe: Path, data: str, tmp_path: Path, form: str) -> None:
    folder, display = RunFolder.new(tmp_path / "run"), Listening()
    more = ("reward.dominance=false", "algorithm.name=turn_rloo", "train.steps=1")
    train(recipe, folder, data, *MODEL, *more, f"reward_model.form={form}", display=display)
    row = read_rows(folder.path / "trajectories/step-000001.parquet")[0]
    if form == "process":
        assert len(json.loads(row["turn_parts"])["reward_model"]) == row["turns"]
    else:
        assert 0 < json.loads(row["parts"])["reward_model"] < 1
    assert "reward_model/loss" not in folder.lines("metrics.jsonl")[0], "it is frozen"
    assert any(said.startswith("reward model: ") for said in display.said)


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.long
def test_files_of_conversations(recipe: Path, tmp_path: Path) -> None:
    asked = message("user", "Say\u2028a.")
    good, bad = (message("assistant", letter) for letter in "ab")
    labelled = [{"messages": [asked, one], "success": one is good} for one in (good, bad)]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in labelled)
    (tmp_path / "labelled.jsonl").write_text(f"\ufeff{lines}", encoding="utf-8")
    pair = {"prompt": [asked], "chosen": [good], "rejected": [bad]}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    common = (*MODEL, "train.steps=0", "evaluation.tasks=1", "reward_model.heldout_share=0")
    for name, form in (("labelled", "outcome"), ("pairs", "pairs")):
        folder = RunFolder.new(tmp_path / name)
        given = f'reward_model.data=["{tmp_path}/{name}.jsonl"]'
        train(recipe, folder, given, f"reward_model.form={form}", *common)
        found = json.loads((folder.path / "reward_model.json").read_text())
        assert (found["trained_on"], found["accuracy"]) == (2 if name == "labelled" else 1, None)


@pytest.mark.long
def test_episodes_of_scripted_behaviours(recipe: Path, data: str, tmp_path: Path) -> None:
    """They are learned from beside the data, also where the policy learns nothing."""
    given = (*MODEL, "train.steps=0", "evaluation.tasks=1", "reward_model.demonstrations.count=12")
    shares = "reward_model.demonstrations.behaviours={guessing=1.0}"
    folder = RunFolder.new(tmp_path / "run")
    train(recipe, folder, data, *given, shares)
    found = json.loads((folder.path / "reward_model.json").read_text())
    assert found["trained_on"] + found["heldout"] == 24 + 12
    with pytest.raises(ConfigError, match="unknown behaviour 'guesing'"):
        train(recipe, RunFolder.new(tmp_path / "no"), *given, shares.replace("ssi", "si"))


@pytest.mark.long
def test_tasks_of_conversations_are_what_was_asked(recipe: Path, tmp_path: Path) -> None:
    """Instructions that all conversations share do not make them one task."""
    begin, end = message("system", "Be short."), message("assistant", "a")
    said = [[begin, message("user", f"Say {number}."), end] for number in range(20)]
    lines = [{"messages": one, "success": n % 2 == 0} for n, one in enumerate(said)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    folder = RunFolder.new(tmp_path / "run")
    more = ("train.steps=0", "evaluation.tasks=1", "reward_model.heldout_share=0.5")
    train(recipe, folder, f'reward_model.data=["{tmp_path}/data.jsonl"]', *MODEL, *more)
    found = json.loads((folder.path / "reward_model.json").read_text())
    assert min(found["heldout"], found["trained_on"]) > 3


@pytest.mark.parametrize(
    ("line", "form", "said"),
    [
        ("nonsense", "outcome", "line 1 is not JSON"),
        ("[1]", "outcome", "not a JSON object"),
        ('{"messages": []}', "outcome", 'no "success"'),
        ('{"success": true, "messages": [1]}', "outcome", 'no "messages"'),
        (
            '{"success": true, "messages": [{"role": "user"}]}',
            "outcome",
            "no message of the assist",
        ),
        ('{"success": true, "messages": [{"role": "robot"}]}', "outcome", "of role 'robot'"),
        ('{"prompt": null, "chosen": [], "rejected": []}', "pairs", 'line 1: "prompt" is no list'),
    ],
)
def test_lines_that_cannot_be_used(
    recipe: Path, tmp_path: Path, line: str, form: str, said: str
) -> None:
    (tmp_path / "data.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=said):
        lessons_of(recipe, tmp_path / "data.jsonl", form)


@pytest.mark.long
def test_sources_that_cannot_be_used(
    recipe: Path, data: str, whole: RunFolder, tmp_path: Path
) -> None:
    RunFolder.new(tmp_path / "ended").begin(load_recipe(str(recipe), [data, *MODEL]))
    for source, message in (
        (tmp_path / "ended", "has no tokenizer"),
        (tmp_path, "not a run folder"),
        (tmp_path / "no.jsonl", "cannot be read"),
        (whole.path / "trajectories/evaluation-trained.parquet", "held-out tasks"),
    ):
        with pytest.raises(DataError, match=message):
            lessons_of(recipe, source)
    gone = f'reward_model.data=["{tmp_path}/no.jsonl"]'
    with pytest.raises(DataError, match="there is no /"):
        train(recipe, RunFolder.new(tmp_path / "run"), gone, *MODEL)


def lessons_of(recipe: Path, source: Path, form: str = "outcome") -> list[Lesson]:
    given = (f'reward_model.data=["{source}"]', f"reward_model.form={form}")
    parts = build_components(load_recipe(str(recipe), [*given, *MODEL]))
    model = parts.reward_sources["reward_model"].model
    return read_lessons([str(source)], model, parts.scaffold, parts.tokenizer)


def test_a_run_never_replaces_its_own_data(recipe: Path, data: str, tmp_path: Path) -> None:
    taught = RunFolder.open(recipe.parent / "data")
    lines = taught.lines("metrics.jsonl")
    for own in (data, f'reward_model.data=["{taught.path}/trajectories/step-000001.parquet"]'):
        with pytest.raises(DataError, match="which the new run replaces"):
            train(recipe, RunFolder.new(taught.path, overwrite=True), own, *MODEL)
    assert taught.lines("metrics.jsonl") == lines


@pytest.mark.long
def test_a_reward_model_that_is_lost_is_named(
    whole: RunFolder, recipe: Path, data: str, tmp_path: Path
) -> None:
    untaught = shutil.copytree(recipe.parent / "data/checkpoints", tmp_path / "checkpoints")
    weights, loaded = untaught / "step-000004", whole.recipe()
    with pytest.raises(DataError, match="there is no reward model in"):
        build_components(loaded, weights)
    shutil.copytree(whole.checkpoints / "reward_model", untaught / "reward_model")
    (untaught / "reward_model/step-000003/learner.pt").write_bytes(b"")
    with pytest.raises(DataError, match=r"step-000003.*: train anew"):
        build_components(loaded, weights)


def test_what_cannot_work_is_refused(recipe: Path, data: str) -> None:
    for changes, message in (
        ((data,), "nothing asks the reward model"),
        (("reward.parts.reward_model=1",), "the recipe describes none: describe one"),
        (
            (data, *MODEL, BESIDE, "train.max_staleness=1", "engine.deterministic=false"),
            "beside_polic",
        ),
        ((data, *MODEL, "evaluation.episodes_per_task=1"), "raise evaluation.episodes_per_task"),
        (
            (data, *MODEL, BESIDE, *(f"evaluation.during_rl.{one}" for one in ("every=1", BEST))),
            "would leave the best policy with a later one",
        ),
        (("reward_model.data=[]", *MODEL), "has nothing to learn from"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_recipe(str(recipe), changes)


@pytest.mark.long
def test_what_an_evaluation_cannot_have_is_refused(
    whole: RunFolder, recipe: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        ([str(recipe), data, *MODEL], "a recipe alone has none"),
        ([str(whole.path), "reward_model.form=pairs"], "leave reward_model.form as the run has it"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["evaluate", *arguments])
        assert message in " ".join(capsys.readouterr().err.split())


def test_data_is_found_again_from_anywhere(recipe: Path) -> None:
    loaded = load_recipe(str(recipe), ['reward_model.data=["runs/a"]', *MODEL])
    kept = with_whole_paths(loaded).reward_model
    assert kept.data == (str(Path("runs/a").resolve()),)
