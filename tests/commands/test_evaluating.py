"""Commands that measure policies, on runs of a small random model."""

import json
import shutil
from pathlib import Path

import pytest

from scripts.expected_runs import expected_text
from tests import small_runs
from tests.commands.shell import Shell
from tests.small_runs import write_recipe
from turnwise.evaluation import expected
from turnwise.storage.run_folder import RunFolder

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 2, episodes_per_task = 2, temperature = 1.0 }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is finished, of an environment whose success is never seen."""
    folder = tmp_path_factory.mktemp("runs")
    small_runs.train(write_recipe(folder, "Letters", TABLES), RunFolder.new(folder / "run"))
    return folder / "run"


@pytest.mark.long
def test_runs_are_compared_on_the_same_tasks(shell: Shell, run: Path) -> None:
    (found,) = shell("compare-runs", f"{run}@cold_start", run, "--json").json
    assert (found["tasks"], found["pairs"], found["difference"], found["p"]) == (2, 4, 0, 1)
    assert not found["same_seeds"]
    assert RunFolder(run).report()["comparisons"][0] == found | {
        "first": "cold_start",
        "second": "trained",
    }
    named = shutil.copytree(run, run.parent / "rate@1e-4")  # a name may have an @ of its own
    (same,) = shell("compare-runs", f"{named}@cold_start", named, "--json").json
    assert same == found | {"first": f"{named}@cold_start", "second": str(named)}
    shown = " ".join(shell("compare-runs", f"{run}@cold_start", run).out.split())
    assert "the same 2 tasks, 4 episodes of each" in shown
    assert "no difference that luck could not make" in shown
    assert "their episodes had other seeds" in shown
    assert "two runs or more" in shell("compare-runs", run, code=2).err
    refused = shell("compare-runs", f"{run}@traned", run, code=2).err
    assert "unknown evaluation 'traned': did you mean 'trained'?" in refused
    assert "not a run folder" in shell("compare-runs", run, run.parent, code=2).err


@pytest.mark.long
def test_runs_on_other_tasks_are_refused_in_a_line(shell: Shell, run: Path) -> None:
    other = run.parent / "other"
    small_runs.train(run / "config.toml", RunFolder.new(other), "evaluation.tasks=1")
    refused = shell("compare-runs", run, other, code=2).err
    assert "2 episodes of the same tasks in common, of 4 and 2" in refused


@pytest.mark.long
def test_a_run_is_placed_among_those_that_came_with_its_recipe(
    shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = shell("compare-runs", run, "--expected", code=2).err
    assert "no runs of recipe 'small' came with turnwise: give a run of demo" in refused
    monkeypatch.setattr(expected, "shipped_recipes", lambda: {"small": run.parent / "small.toml"})
    (run.parent / "small.expected.json").write_text(expected_text([run] * 3))
    shown = " ".join(shell("compare-runs", run, "--expected").out.split())
    assert "among 3 runs of small" in shown
    assert "│ success, trained │ 0.0% │ 0.0% – 100.0% │ inside │" in shown
    assert "this run:" not in shown
    better = run.parent / "better"
    shutil.copytree(run, better)
    (line,) = RunFolder(run).lines("metrics.jsonl")
    (better / "metrics.jsonl").write_text(json.dumps(line | {"reward/mean": 1.0}) + "\n")
    found = shell("compare-runs", run, better, "--expected", "--json", code=1).json
    outside = [(one["figure"], one["value"]) for one in found[str(better)] if not one["inside"]]
    assert outside == [("reward, steps 1 – 1", 1.0)]
    assert all(one["inside"] for one in found[str(run)])
    (better / "report.json").unlink()
    assert "not finished" in shell("compare-runs", better, "--expected", code=2).err


def test_show_has_the_figures_of_an_evaluation(shell: Shell, run: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = " ".join(shell("show", run, "--count", "1", "--plot", run / "budget.png").out.split())
    assert "evaluation-trained: 2 held-out tasks, 4 episodes" in shown
    assert "too few tasks" in shown
    assert (run / "budget.png").read_bytes().startswith(b"\x89PNG")
    assert "95% interval" not in shell("show", run, "--step", "1").out
    assert "ends with .png" in shell("show", run, "--plot", run / "budget", code=2).err
    nowhere = run / "none" / "budget.png"
    assert f"{nowhere} cannot be written" in shell("show", run, "--plot", nowhere, code=2).err


@pytest.mark.long
def test_an_evaluation_is_kept_in_a_folder_that_is_read_as_a_runs(
    shell: Shell, run: Path, tmp_path: Path
) -> None:
    newest, before = tmp_path / "newest", tmp_path / "before"
    checkpoint = run / "checkpoints/step-000001"
    summary = shell("evaluate", run, "evaluation.seed=3", "--out", newest, "--json").json
    assert RunFolder.open(newest).evaluation("evaluated") == summary | {
        "step": 1,
        "environment": RunFolder(run).report()["trained"]["environment"],
    }
    assert "turnwise show" in shell("evaluate", checkpoint, "--out", before).out
    same = ("evaluation.seed=3", "evaluation.temperature=0", "--out", tmp_path / "greedy")
    shell("evaluate", checkpoint, *same)
    (found,) = shell("compare-runs", newest, tmp_path / "greedy", "--json").json
    assert (found["pairs"], found["same_seeds"]) == (4, True)
    shown = " ".join(shell("show", newest).out.split())
    assert "evaluation-evaluated: 2 held-out tasks, 4 episodes" in shown
    card = (newest / "report.md").read_text()
    assert "| evaluated | 0.0% |" in card
    assert not list((newest / "checkpoints").iterdir())


@pytest.mark.long
def test_where_no_evaluation_can_be_kept_is_said_before_it_is_played(
    shell: Shell, run: Path, tmp_path: Path
) -> None:
    assert "is not empty: choose another" in shell("evaluate", run, "--out", run, code=2).err
    file = tmp_path / "file"
    file.write_text("")
    refused = shell("evaluate", run, "--out", file / "inside", code=2).err
    assert "cannot be written" in refused
    folder = tmp_path / "kept"
    shell("evaluate", run, "evaluation.tasks=0", "--out", folder, code=2)
    assert not list(folder.iterdir()), "one that fails leaves nothing"
    shell("evaluate", run, "--out", folder)
    assert "holds an evaluation and no run" in shell("train", "--resume", folder, code=2).err
    assert "has no checkpoint yet" in shell("evaluate", folder, code=2).err
