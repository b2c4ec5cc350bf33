"""The command `plan`: a table at 80 columns, JSON, a run to plan from, and mistakes."""

import json
from pathlib import Path
from statistics import fmean

import pytest

from tests.commands.shell import Shell
from tests.small_runs import train, write_recipe
from turnwise.cluster.planner.measured import fit_beside, fit_pace, mean_step, read_run
from turnwise.cluster.planner.simulation import Schedule, simulate
from turnwise.config import dump_recipe, load_recipe
from turnwise.storage.run_folder import RunFolder

TABLES = """
[rollout]
max_turns = 2
max_turn_tokens = 12
max_tokens = 300
[train]
steps = 4
tasks_per_step = 2
group_size = 2
[evaluation]
tasks = 0
"""
AHEAD = Schedule(1, colocated=False)
SMALL = ("--gpus", "4", "--gpu", "l4")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_a_plan_reads_well_at_80_columns(shell: Shell) -> None:
    told = shell("plan", "demo", *SMALL, "--gpu-hour", "1", "--success", "0.5").out
    assert "steps/h" in told
    assert "bound by" in told
    assert "Cost: $" in told
    assert "a success." in told
    assert "model parameters 2164416" in told
    table = [line for line in told.splitlines() if line and line[0] in "┏┃┡│└"]
    assert table
    assert max(map(len, table)) <= 80


def test_a_plan_as_json(shell: Shell) -> None:
    found = shell("plan", "demo", *SMALL, "--json", "--max-staleness", "1").json
    best = found["plans"][0]
    assert best["steps_per_hour"] == pytest.approx(3600 / best["timing"]["step"])
    assert best["division"]["staleness"] <= 1
    assert best["learner_memory"]["total"] > 2 * 2**30
    assert best["step_cost"] is None
    assert found["assumptions"]["episodes a step"] == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo", "--gpu", "h1000"), "no GPU is called 'h1000': did you mean h100"),
        (("demmo",), "demo"),
        (("demo", "model.name=/nowhere"), "the config of /nowhere cannot be read"),
        (("demo", "--from", "/nowhere"), "/nowhere"),
        (("demo", "--from", ".", "--turns", "3"), "leave out --turns"),
        (("demo", "--gpu-hour", "-1"), "--gpu-hour is -1: give a price of 0 or more"),
        (("demo", "--gpu-hour", "inf"), "--gpu-hour is inf: give a price"),
        (("demo", "evaluation.prices.tool_call=-1"), "evaluation.prices.tool_call"),
    ],
)
def test_mistakes_are_one_line(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    failed = shell("plan", *arguments, code=2)
    assert message in failed.err
    assert len(failed.err.strip().splitlines()) == 1


def test_a_model_without_numbers_and_one_that_is_too_large_are_refused(
    shell: Shell, tmp_path: Path
) -> None:
    config = {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    large = (f"model.name={tmp_path}", "model.gradient_checkpointing=true")
    failed = shell("plan", "demo", *large, "--gpus", "1", code=2).err
    assert "8.2 billion parameters) does not fit on 1 GPU of 79 GiB" in failed
    assert "give --gpus" in failed
    assert len(failed.strip().splitlines()) == 1
    (tmp_path / "config.json").unlink()
    failed = shell("plan", "demo", *large, code=2).err
    assert "give a folder that has it" in failed
    assert len(failed.strip().splitlines()) == 1


def test_a_run_without_times_is_refused(shell: Shell, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / "config.toml").write_text(dump_recipe(load_recipe("demo")))
    failed = shell("plan", "demo", "--from", folder.path, code=2).err
    assert "has no step of RL to plan from: give a run that has some" in failed
    assert len(failed.strip().splitlines()) == 1


@pytest.mark.long
def test_a_run_gives_its_episodes_and_its_pace(shell: Shell, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    folder = RunFolder.new(tmp_path / "run")
    train(recipe, folder, "model.device=cpu")
    measured = read_run(folder.path)
    lines = folder.lines("metrics.jsonl")[2:]
    load = measured.workload
    assert load.sampled == sum(line["rollout/length_mean"] for line in lines) / len(lines)
    tokens = sum(line["rollout/tokens"] / 4 for line in lines) / len(lines)
    assert load.sampled < load.tokens <= tokens
    assert load.tokens == pytest.approx(tokens, rel=0.2)  # what follows the last turn is not read
    pace = fit_pace([measured], Schedule(), load)
    assert simulate(load, pace, Schedule()).step > pace.update > 0
    assert pace.update == pytest.approx(fmean(measured.update), rel=0.5)
    doubled = 2 * mean_step(load, pace, AHEAD)
    beside = fit_beside(doubled, load, pace, AHEAD)
    assert mean_step(load, beside, AHEAD) == pytest.approx(doubled, rel=0.01)
    found = shell("plan", recipe, "--from", folder.path, *SMALL, "--json").json
    assert found["assumptions"]["sampled tokens"] == round(load.sampled)
