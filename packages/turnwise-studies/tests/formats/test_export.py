"""What is exported can be used: by transformers, by peft, and as data for the next run."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import small_runs
from tests.commands.shell import Shell
from tests.rollout.playing import scaffold_of
from tests.small_runs import write_recipe
from turnwise.config import RecordedDemonstrations, RolloutConfig
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError
from turnwise.rollout.demonstrations import Script, demonstrate
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Action, Group, ToolCall
from turnwise_studies.formats.export import (
    export_guided,
    export_helpful_calls,
    export_policy,
    export_preferences,
    export_successes,
)

pytestmark = pytest.mark.long

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 64, max_tokens = 400 }
sft = { steps = 2, batch_size = 2, demonstrations = { count = 4, behaviours = { faithful = 1 } } }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation.tasks = 2
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Letters", TABLES)


@pytest.fixture(scope="module")
def run(recipe: Path) -> RunFolder:
    """A finished run, whose demonstrations stand for a group that a step of RL has sampled."""
    folder = small_runs.train(recipe, RunFolder.new(recipe.parent / "run")).folder
    table = pq.read_table(folder.path / "trajectories/demonstrations.parquet")
    column = table.schema.get_field_index("group")
    grouped = table.set_column(column, "group", [["one"] * len(table)])
    pq.write_table(grouped, folder.path / "trajectories/step-000002.parquet")
    return folder


def test_the_policy_is_a_plain_folder_of_transformers(run: RunFolder, tmp_path: Path) -> None:
    export_policy(run, tmp_path / "policy", merge=True)
    saved = load_file(run.checkpoints / "step-000001/model.safetensors")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "policy").state_dict()
    assert all(torch.equal(exported[name], weight) for name, weight in saved.items())
    AutoTokenizer.from_pretrained(tmp_path / "policy")
    card = (tmp_path / "policy/README.md").read_text()
    assert "after step 1 of reinforcement" in card
    assert "| trained |" in card
    assert not list((tmp_path / "policy").glob("learner*"))
    with pytest.raises(DataError, match="not an empty folder"):
        export_policy(run, tmp_path / "policy", merge=True)
    with pytest.raises(ConfigError, match="no adapters"):
        export_policy(run, tmp_path / "other", merge=False)


def test_adapters_are_merged_or_apart(recipe: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    folder = RunFolder.new(tmp_path / "run")
    context = small_runs.train(recipe, folder, "model.lora_rank=2", "train.steps=0")
    ids = torch.arange(9)[None]
    expected = context.components.model.eval()(ids).logits
    export_policy(folder, tmp_path / "merged", merge=True)
    export_policy(folder, tmp_path / "apart", merge=False)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    base: Any = AutoModelForCausalLM.from_pretrained(recipe.parent / "model")
    assert not torch.allclose(base.eval()(ids).logits, expected, atol=1e-5)
    apart = peft.PeftModel.from_pretrained(base, str(tmp_path / "apart")).eval()
    torch.testing.assert_close(merged(ids).logits, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(apart(ids).logits, expected, rtol=1e-4, atol=1e-5)


def test_successes_are_demonstrations_of_the_next_run(
    recipe: Path, run: RunFolder, tmp_path: Path
) -> None:
    file = tmp_path / "successes.jsonl"
    written, left_out = export_successes(run, file)
    assert (written, left_out) == (len(file.read_text().splitlines()), 0)
    assert written == 2  # of two tasks, each once
    for line in map(json.loads, file.read_text().splitlines()):
        first, *later = line["messages"]
        shown = [one["content"] for one in (first, *later) if one["role"] != "assistant"]
        places = [line["text"].find(text.strip()) for text in shown]
        assert places[0] == 0
        assert places == sorted(places)
        assert line["text"].endswith(f"<answer> {later[-1]['content']}</answer>")
    with pytest.raises(DataError, match="exists already"):
        export_successes(run, file)
    options = (f"sft.demonstrations.file={file}", "train.steps=0", "evaluation.sft=true")
    context = small_runs.train(recipe, RunFolder.new(tmp_path / "next"), *options)
    lines = context.folder.lines("cold_start.jsonl")
    assert [line["sft/trained_tokens"] > 0 for line in lines] == [True, True]
    kept = context.folder.recipe().sft.demonstrations
    assert kept == RecordedDemonstrations(file=str(file.resolve()))
    display, short = small_runs.Listening(), RunFolder.new(tmp_path / "short")
    few = "rollout.max_tokens=20"
    with pytest.raises(DataError, match="no conversation of at most 20 tokens"):
        small_runs.train(recipe, short, *options, few, display=display)
    assert "2 of 2 conversations" in display.said[-1]


def test_pairs_are_the_best_and_the_worst_of_a_group(run: RunFolder, tmp_path: Path) -> None:
    """Those of a random model are malformed, and left out; the copied demonstrations are one group
    of which two tasks' episodes get different shares of letters."""
    count, left_out = export_preferences(run, tmp_path / "pairs.jsonl")
    (pair,) = map(json.loads, (tmp_path / "pairs.jsonl").read_text().splitlines())
    assert (count, left_out) == (1, 2)
    assert pair["prompt"][0]["role"] == "user"
    assert pair["chosen"] != pair["rejected"]
    assert {message["role"] for message in pair["chosen"]} == {"assistant", "tool"}


def slipping(script: Script, other: Script) -> Script:
    """Opens a wrong door twice; after two hints it acts as the oracle."""
    door = str(script[0].calls[0].arguments["door"])
    wrong = Action("", calls=(ToolCall("open", {"door": "red" if door != "red" else "blue"}),))
    return [wrong, wrong, *script]


def test_guided_successes_stand_beside_the_first_attempt_without_hints(
    run: RunFolder, tmp_path: Path
) -> None:
    environment = make_environment("attempts", {"name": "doors", "memory": "guidance"})
    behaviours = {f"{__file__}:slipping": 1.0}
    tasks, limits = environment.tasks("train")[:2], RolloutConfig(max_tokens=900)
    scaffold = scaffold_of(environment)
    played = asyncio.run(demonstrate(environment, scaffold, limits, tasks, behaviours, 2, 0))
    shutil.copytree(run.path, tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    folder.write_trajectories("step-000002", [Group("guided", tuple(played))])
    assert export_guided(folder, tmp_path / "guided.jsonl") == (2, 0)
    lines = [json.loads(line) for line in (tmp_path / "guided.jsonl").read_text().splitlines()]
    for task, line in zip(tasks, lines, strict=True):
        assert line["prompt"] == [{"role": "user", "content": f"{task.prompt}\nRoom 1."}]
        assert [len(line[name]) for name in ("rejected", "chosen")] == [1, 5]
        assert line["messages"] == line["prompt"] + line["chosen"]
        assert "Plan" not in json.dumps(line)


def test_helpful_calls_have_the_right_answer_after_them(run: RunFolder, tmp_path: Path) -> None:
    """To a random model no result helps; with a threshold below 0 all calls are kept."""
    with pytest.raises(DataError, match="no call that helps by 9 nats"):
        export_helpful_calls(run, tmp_path / "none.jsonl", 9.0)
    file = tmp_path / "calls.jsonl"
    count, _ = export_helpful_calls(run, file, -9.0)
    kept = [json.loads(line)["messages"] for line in file.read_text().splitlines()]
    assert count == len(kept) == 2  # of two tasks, each once
    for messages in kept:
        assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant"]
        assert messages[-1]["content"] in messages[2]["content"]


def test_the_command_says_what_it_has_written(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy"
    shell = Shell(capsys)
    assert f"the policy in {policy}" in shell("export", run.path, "--to", policy).out
    assert "say what to export" in shell("export", run.path, code=2).err
