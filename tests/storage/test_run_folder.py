"""What a run keeps, and that reading it back gives what was written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.graded import graded
from turnwise.config import check_recipe
from turnwise.errors import DataError, InfrastructureError
from turnwise.learning.credits import Credits
from turnwise.learning.signals.base import NUMBERS, SignalArrays, Signals
from turnwise.storage.messages import write_lines
from turnwise.storage.run_folder import RunFolder, with_whole_paths
from turnwise.storage.trajectory_rows import LATER, read_columns, read_rows, trajectory_of
from turnwise.tokens import KeptTokens, Segment, Source, Tokens
from turnwise.types import (
    Action,
    Group,
    Observation,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
)

RECIPE = check_recipe({"name": "x", "environment": {"name": "search"}}, "test")


def begun(place: Path) -> RunFolder:
    folder = RunFolder.new(place / "run")
    folder.begin(RECIPE)
    return folder


def member(reward: float | None) -> Trajectory:
    return graded(
        None if reward is None else False,
        Task("t", "Who?", secret={"answers": ["classified"]}),
        0 if reward is None else 1,
        reward,
        tokens=Tokens.empty()
        .with_segments([Segment([1, 2], Source.USER)], 0)
        .with_sampled([3], [-0.5], version=4, turn=0),
        turns=(Turn(Action("<answer>x</answer>", answer="x")),),
    )


def test_experts_and_what_each_token_was_drawn_among_come_back(tmp_path: Path) -> None:
    experts, kept = (
        np.arange(12, dtype=np.int16).reshape(3, 2, 2),
        KeptTokens.of([[], [], [3, 90_000]]),
    )
    one = member(0.0)
    one = replace(one, tokens=replace(one.tokens, experts=experts, kept=kept))
    folder = begun(tmp_path)
    folder.write_trajectories("step-000001", [Group("g", (one, member(None)))])
    rows = read_rows(folder.trajectory_files()[0])
    found, other = (trajectory_of(row, one.task).tokens for row in rows)
    assert (other.experts, other.kept) == (None, None)
    assert np.array_equal(found.experts, experts)
    assert (found.kept.ids.tolist(), found.kept.counts.tolist()) == ([3, 90_000], [0, 0, 2])


def test_trajectories_come_back_token_for_token(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    penalised = member(0.0)
    signals = Signals({penalised.id: SignalArrays(penalty=0.25)})
    credits = Credits({penalised.id: np.array([0.0, 0.0, -1.5], np.float32)}, frozenset())
    groups = [Group("g", (penalised, member(None)))]
    tokens = np.array([(np.nan, np.nan, np.nan)] * 2 + [(-0.75, 0.5, 0.25)], NUMBERS)
    folder.write_trajectories("step-000001", groups, signals, credits, {penalised.id: tokens})
    (file,) = folder.trajectory_files()
    graded, ungraded = read_rows(file)
    assert graded["ids"] == [1, 2, 3]
    assert graded["source"] == [Source.USER, Source.USER, Source.MODEL]
    assert graded["version"] == [-1, -1, 4]
    assert np.isnan(graded["logprob"][:2]).all()
    for name, value in (("trained_logprob", -0.75), ("entropy", 0.5), ("loss_weight", 0.25)):
        assert np.isnan(graded[name][:2]).all()
        assert graded[name][2] == value
        assert ungraded[name] == []
    assert (graded["reward"], ungraded["reward"]) == (0.0, None)
    assert (graded["penalty"], ungraded["penalty"]) == (0.25, 0.0)
    assert graded["advantage"] == [0.0, 0.0, -1.5]
    assert ungraded["advantage"] == [0.0, 0.0, 0.0]
    assert b"classified" not in file.read_bytes()
    assert "classified" not in str(graded)


def test_a_trajectory_comes_back_whole(tmp_path: Path) -> None:
    """All that a verifier may look at: actions, what came back of them, the verdict, the tokens."""
    call = ToolCall("add", {"number": 3, "names": ["ä"]}, "0.0")
    step = Step(Observation("3", Source.TOOL), (ToolResult(call, "3", False),), reward=0.5)
    last = Step(None, done=True)
    whole = replace(
        member(0.25),
        turns=(
            Turn(Action("<add>3", "hm", (call,)), step),
            Turn(Action("x", error="no such tag")),
            Turn(Action("done", answer="3"), last),
        ),
        verdict=Verdict(0.25, False, {"part": 0.25}, "said 3", {"gain": [0.0, 1.0, 0.0]}),
    )
    folder = begun(tmp_path)
    folder.write_trajectories("evaluation-trained", [Group("g", (whole,))])
    (row,) = read_rows(*folder.trajectory_files())
    read = trajectory_of(row, whole.task)
    assert read.turns == whole.turns
    assert read.verdict == replace(whole.verdict, turn_rewards=[0.5, 0.0, 0.0])
    assert (read.reward, read.outcome, read.id) == (0.75, whole.outcome, whole.id)
    for name in ("ids", "source", "turn", "version", "logprob", "contexts"):
        np.testing.assert_array_equal(getattr(read.tokens, name), getattr(whole.tokens, name))
    folder.write_trajectories("evaluation-other", [Group("g", (member(None),))])
    (row,) = read_rows(folder.path / "trajectories/evaluation-other.parquet")
    assert trajectory_of(row, whole.task).verdict is None


def test_the_seconds_of_tools_are_kept_for_each_call(tmp_path: Path) -> None:
    call = ToolCall("add", {}, "0.0")
    timed, untimed = ToolResult(call, "3", seconds=0.25), ToolResult(call, "3")
    turns = (Turn(Action("x"), Step(None, (timed, untimed))), Turn(Action("no tag")))
    folder = begun(tmp_path)
    folder.write_trajectories("other", [Group("g", (replace(member(1.0), turns=turns),))])
    (row,) = read_rows(*folder.trajectory_files())
    assert row["tool_seconds"] == [[0.25, None], []]


def test_a_long_trajectory_can_be_read_alone(tmp_path: Path) -> None:
    """Rows of few tokens are written together, those of many in groups of their own."""
    long = Tokens.empty().with_segments([Segment([1] * 50_000, Source.USER)], 0)
    folder = begun(tmp_path)
    for name, tokens in (("short", member(1.0).tokens), ("long", long)):
        members = [replace(member(1.0), episode=number, tokens=tokens) for number in range(4)]
        folder.write_trajectories(name, [Group("g", tuple(members))])
    groups = {
        file.stem: pq.read_metadata(file).num_row_groups for file in folder.trajectory_files()
    }
    assert groups == {"short": 1, "long": 4}


def test_trajectories_of_earlier_versions_can_be_read(tmp_path: Path) -> None:
    """What they did not record is empty; what a trajectory cannot be read without is asked for."""
    folder = begun(tmp_path)
    folder.write_trajectories("step-000001", [Group("g", (member(1.0),))])
    (file,) = folder.trajectory_files()
    (whole,) = read_rows(file)
    pq.write_table(pq.read_table(file).drop_columns(list(LATER)), file)
    (older,) = read_rows(file)
    assert older.keys() == whole.keys()
    assert (older["roles"], older["entropy"], older["loss_weight"]) == ([""], [], [])
    assert trajectory_of(older, member(1.0).task).turns == member(1.0).turns
    (columns,) = read_columns(file, ["prompt", "task_prompt"])
    assert columns["task_prompt"] == columns["prompt"] == whole["prompt"]


def test_rewinding_forgets_what_will_be_done_again(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    for step in (1, 2, 3):
        folder.append("metrics.jsonl", {"step": step})
        folder.write_trajectories(f"step-{step:06d}", [])
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "cut sh')
    folder.rewind("metrics.jsonl", 2)
    folder.forget_trajectories(2)
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2]
    assert [file.stem for file in folder.trajectory_files()] == ["step-000001", "step-000002"]
    folder.append("metrics.jsonl", {"step": 3})
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2, 3]


def test_folders_that_are_taken_missing_or_damaged(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    with pytest.raises(DataError, match="--resume"):
        RunFolder.new(tmp_path / "run")
    with pytest.raises(DataError, match=r"no config\.toml"):
        RunFolder.open(tmp_path)
    damaged = folder.path / "trajectories" / "step-000001.parquet"
    damaged.write_bytes(b"PAR1 not a table")
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(damaged)
    folder.write_trajectories("step-000002", [Group("g", (member(1.0),))])
    older = folder.path / "trajectories" / "step-000002.parquet"
    pq.write_table(pq.read_table(older).drop_columns(["contexts"]), older)
    with pytest.raises(DataError, match=r"earlier version of turnwise: it has no 'contexts'"):
        read_rows(older)
    assert folder.recipe() == RECIPE


def test_overwriting_waits_until_the_run_begins(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    logs = ("metrics.jsonl", "cpt.jsonl")
    for log in logs:
        folder.append(log, {"step": 1})
    other = RunFolder.new(tmp_path / "run", overwrite=True)
    assert [len(folder.lines(log)) for log in logs] == [1, 1]
    other.begin(RECIPE)
    assert [folder.lines(log) for log in logs] == [[], []]
    RunFolder.open(tmp_path / "run").begin(RECIPE)


def test_a_run_that_goes_on_has_its_folders_again(tmp_path: Path) -> None:
    """Copies and archives often leave empty folders out."""
    RunFolder.new(tmp_path / "run").begin(RECIPE)
    (tmp_path / "run" / "trajectories").rmdir()
    config = (tmp_path / "run" / "config.toml").read_bytes()
    folder = RunFolder.open(tmp_path / "run")
    folder.begin(RECIPE.model_copy(update={"seed": 9}))
    folder.write_trajectories("step-000001", [])
    assert (tmp_path / "run" / "config.toml").read_bytes() == config


def test_a_run_that_never_began_is_no_run(tmp_path: Path) -> None:
    """Killed while it was loading its model, it leaves its lock."""
    (tmp_path / "lock").write_text("{}")
    RunFolder.new(tmp_path).begin(RECIPE)


@pytest.mark.parametrize(
    "line",
    ["{", "", "[1]", '"step"', "null", '{"stfp": 1}', "\0\0", "\udcff", "[" * 100_000],
    ids=lambda line: ascii(line[:8]),
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    folder = begun(tmp_path)
    file = folder.path / "metrics.jsonl"
    text = f'{{"step": 1}}\n{line}\n{{"step": 3}}\n'
    file.write_bytes(text.encode(errors="surrogateescape"))
    for read in (folder.lines, lambda name: folder.rewind(name, 2)):
        with pytest.raises(DataError, match=r"metrics\.jsonl, line 2 is damaged: delete") as caught:
            read("metrics.jsonl")
        assert "\n" not in str(caught.value)
    assert file.stat().st_size == len(text.encode(errors="surrogateescape"))


@pytest.mark.parametrize("torn", [b'{"step": 2, "cut', b"\0" * 40, b"\xff\xfe", b'{"step": 2}'])
def test_a_torn_last_line_is_left_out(tmp_path: Path, torn: bytes) -> None:
    folder = begun(tmp_path)
    (folder.path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + torn)
    assert folder.lines("metrics.jsonl") == [{"step": 1}]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0", "[" * 100_000])
def test_damaged_small_files_are_one_line_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    folder = begun(tmp_path)
    for name in ("evaluations/trained.json", "report.json", "config.toml"):
        (folder.path / name).write_text(text)
    reads = [
        (lambda: folder.evaluation("trained"), r"trained\.json is damaged: delete it"),
        (folder.report, r"report\.json is damaged: go on"),
        (folder.recipe, r"config\.toml is damaged: "),
    ]
    for read, message in reads:
        with pytest.raises(DataError, match=message) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """This process's memory, whose first page nobody may read, stands for a disk that fails."""
    folder = begun(tmp_path)
    (folder.path / "metrics.jsonl").symlink_to("/proc/self/mem")
    with pytest.raises(DataError, match=r"metrics\.jsonl cannot be read: "):
        folder.lines("metrics.jsonl")


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for overwrite in (False, True):
        with pytest.raises(DataError, match="holds no run"):
            RunFolder.new(tmp_path, overwrite)


def test_a_disk_that_fails_is_named(tmp_path: Path) -> None:
    """/dev/full is full; what was there before stays, and nothing half-written is left."""
    folder = begun(tmp_path)
    folder.write_evaluation("trained", {"step": 1})
    for name in ("metrics.jsonl", "trajectories/step-000001.parquet.partial"):
        (folder.path / name).symlink_to("/dev/full")
    (folder.path / "evaluations" / "trained.json.partial").symlink_to("/dev/full")
    writes = {
        "metrics.jsonl": lambda: folder.append("metrics.jsonl", {"step": 1}),
        "step-000001.parquet": lambda: folder.write_trajectories("step-000001", []),
        "trained.json": lambda: folder.write_evaluation("trained", {"step": 2}),
    }
    for name, write in writes.items():
        with pytest.raises(InfrastructureError, match="No space left on device; the last") as full:
            write()
        assert f"{name} cannot be written" in str(full.value)
    assert folder.evaluation("trained") == {"step": 1}
    assert not list(folder.path.rglob("*.partial"))


def test_a_folder_that_cannot_be_made_or_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run", fresh=True).begin(RECIPE)
    folder = begun(tmp_path)
    (folder.path / "trajectories").rmdir()
    with pytest.raises(InfrastructureError, match=r"step-000001\.parquet cannot be written"):
        folder.write_trajectories("step-000001", [])

    class Unwritable:
        def save_pretrained(self, save_directory: str) -> None:
            raise Exception("No space left on device (os error 28)")  # as tokenizers does

    with pytest.raises(InfrastructureError, match="tokenizer cannot be written: No space"):
        folder.write_tokenizer(Unwritable())


def test_a_kept_recipe_means_the_same_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "tasks.jsonl"):
        Path(name).touch()
    for name in ("model", "models/mine", "tiny"):
        Path(name).mkdir(parents=True)
    own = "mine.py:Own"
    values = {
        "name": "x",
        "model": {"name": "model"},
        "environment": {
            "name": own,
            "options": {"questions": "tasks.jsonl", "describe": own, "split": "model", "n": 3},
        },
        "scaffold": {"name": own, "options": {"instructions": "Say: yes"}},
        "engine": {"name": own},
        "algorithm": {"estimator": own, "clip_high": 0.3, "teacher": {"model": "models/mine"}},
        "sft": {"demonstrations": {"behaviours": {own: 1.0}}},
        "monitor": {"echo_trap": own, "trackers": [own, "wandb"]},
    }
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(check_recipe(values, "test"))
    kept, whole = folder.recipe(), f"{tmp_path}/mine.py:Own"
    assert kept.model.name == f"{tmp_path}/model"
    assert kept.algorithm.teacher.model == f"{tmp_path}/models/mine"
    values["algorithm"] = {"teacher": {"model": {"sums": "models/mine", "desk": "a/b"}}}
    teachers = with_whole_paths(check_recipe(values, "test")).algorithm.teacher
    assert teachers.model == {"sums": f"{tmp_path}/models/mine", "desk": "a/b"}
    for name in ("Qwen/Qwen3-0.6B", "tiny"):  # of the hub, and our own
        other = RunFolder.new(tmp_path / name.replace("/", "-"))
        other.begin(check_recipe({**values, "model": {"name": name}}, "test"))
        assert other.recipe().model.name == name
    assert kept.environment.name == kept.scaffold.name == kept.engine.name == whole
    assert kept.environment.options == {
        "questions": f"{tmp_path}/tasks.jsonl",
        "describe": whole,
        "split": "model",
        "n": 3,
    }
    assert kept.scaffold.options == {"instructions": "Say: yes"}
    assert kept.algorithm.overrides == {"estimator": whole, "clip_high": 0.3}
    assert kept.sft.demonstrations.behaviours == {whole: 1.0}
    assert (kept.monitor.echo_trap.reaction, kept.monitor.trackers) == (whole, (whole, "wandb"))


def test_a_file_in_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"lines\.jsonl cannot be written: "):
        write_lines(tmp_path / "file" / "lines.jsonl", ["{}"], "nothing")
