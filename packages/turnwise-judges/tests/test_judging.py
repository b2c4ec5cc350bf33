"""Saved trajectories before a judge: agreement with the verdicts, and pairs by the judge."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import small_runs
from tests.chat_server import serving
from tests.commands.shell import Shell
from tests.small_runs import write_recipe
from turnwise.errors import ConfigError, DataError
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import SCHEMA, read_rows
from turnwise_judges.judging import judge_rows
from turnwise_judges.settings import load_judge

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 64, max_tokens = 400 }
sft = { steps = 2, batch_size = 2, demonstrations = { count = 4, behaviours = { faithful = 1 } } }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation.tasks = 2
"""

SCRIPT = """
import json

def data(messages):
    return json.loads(messages[-1]["content"].splitlines()[1])

def answer(messages, **values):
    example = json.loads(messages[-1]["content"].splitlines()[-1])
    return json.dumps(example | values)

def turns(messages):
    return answer(messages, score=min(10, 4 * len(data(messages)["turns"])))

def found(messages):
    record = data(messages)
    known = [turn["returned"] for turn in record["turns"]]
    return answer(messages, score=10 if any(str(record["answer"]) in one for one in known) else 0)

def silent(messages):
    return "I cannot say."

def later_in_the_alphabet(messages):
    first, second = (data(messages)[which]["answer"] or "" for which in ("first", "second"))
    better = "tie" if first == second else "first" if first > second else "second"
    return answer(messages, better=better)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose first step has a group of a random model's episodes, which fail, and whose second
    one has the oracle's four: success in two tasks, as one group with other rewards."""
    recipe = write_recipe(tmp_path_factory.mktemp("recipe"), "Capitals", TABLES)
    folder = small_runs.train(recipe, RunFolder.new(recipe.parent / "run")).folder
    (folder.path / "script.py").write_text(SCRIPT)
    rows = read_rows(folder.path / "trajectories/demonstrations.parquet")
    for number, row in enumerate(rows):
        row["group"], row["episode"], row["reward"] = "one", number, float(number % 2)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, folder.path / "trajectories/step-000002.parquet")
    return folder


def rows(run: RunFolder, step: int) -> list[dict[str, Any]]:
    return read_rows(run.path / f"trajectories/step-{step:06d}.parquet")


def settings(run: RunFolder, script: str, text: str = "") -> Path:
    file = run.path / f"{script}.toml"
    file.write_text(
        f'[judge]\n{text}\n[judge.model]\nkind = "scripted"\n'
        f'script = "{run.path}/script.py:{script}"\n'
    )
    return file


def judged(
    run: RunFolder, chosen: list[dict[str, Any]], script: str, text: str = ""
) -> tuple[dict[str, Any], Any]:
    config = load_judge(settings(run, script, text))
    return asyncio.run(judge_rows(run, chosen, config, SilentDisplay()))


def test_scores_are_compared_with_success(run: RunFolder) -> None:
    both = [*rows(run, 1), *rows(run, 2)]
    summary, judgements = judged(run, both, "found")
    assert (summary["n"], summary["missing"]) == (8, 0)
    assert summary["accuracy"] == summary["kappa"] == summary["ranking"] == 1.0
    assert [one.gold for one in judgements] == [False] * 4 + [True] * 4
    assert {one.judged for one in judgements} == {0.0, 10.0}
    assert judgements[0].reason == "in a few words"


def test_what_was_answered_is_not_asked_again(run: RunFolder) -> None:
    first, _ = judged(run, rows(run, 2), "turns")
    again, _ = judged(run, rows(run, 2), "turns")
    assert first["judge/calls"] == 2, "two tasks, each played twice alike"
    assert (again["judge/calls"], again["judge/cache_hits"]) == (0, 4)
    assert again["accuracy"] == first["accuracy"] == 1.0


def test_judgements_that_are_missing_are_counted(run: RunFolder) -> None:
    summary, judgements = judged(run, rows(run, 2), "silent")
    assert (summary["n"], summary["missing"]) == (0, 4)
    assert summary["accuracy"] != summary["accuracy"], "NaN"
    assert {one.judged for one in judgements} == {None}
    assert "malformed" in judgements[0].reason


def test_comparisons_are_compared_with_rewards(run: RunFolder) -> None:
    summary, judgements = judged(run, rows(run, 2), "later_in_the_alphabet", 'form = "pairwise"')
    assert summary["n"] == len(judgements) == 4, "pairs whose rewards differ"
    assert {one.gold for one in judgements} == {"first", "second"}
    assert summary["judge/position_bias"] == 0.0
    assert "ranking" not in summary
    with pytest.raises(DataError, match="have different rewards"):
        judged(run, rows(run, 1), "later_in_the_alphabet", 'form = "pairwise"')


def test_the_policy_as_a_judge_needs_a_chat_template(run: RunFolder) -> None:
    file = run.path / "policy.toml"
    file.write_text("[judge]\n")
    with pytest.raises(ConfigError, match="no chat template"):
        asyncio.run(judge_rows(run, rows(run, 2), load_judge(file), SilentDisplay()))


def test_the_command(run: RunFolder, shell: Shell) -> None:
    file = settings(run, "found")
    found = shell("judge", run.path, file, "--step", "2", "--json").json
    assert found["file"] == "step-000002"
    assert found["accuracy"] == 1.0
    assert found["kappa"] is None
    assert len(found["judgements"]) == 4
    table = shell("judge", run.path, file, "--step", "2", "--count", "2").out
    assert "accuracy" in table
    assert "calls" in table
    wrong = shell("judge", run.path, file, "judge.hihg=3", code=2).err
    assert "did you mean 'judge.high'" in wrong


def test_pairs_by_a_judge(run: RunFolder, tmp_path: Path, shell: Shell) -> None:
    file, pairs = settings(run, "later_in_the_alphabet", 'form = "pairwise"'), tmp_path / "p.jsonl"
    said = shell("judge", run.path, file, "--step", "2", "--preferences", pairs).out
    assert f"1 lines in {pairs}" in said
    (pair,) = map(json.loads, pairs.read_text().splitlines())
    last = {key: pair[key][-1]["content"] for key in ("chosen", "rejected")}
    assert last["chosen"] > last["rejected"], "whatever the verifier gave"
    again = shell("judge", run.path, file, "--step", "2", "--preferences", pairs, code=2).err
    assert "exists already" in again


@pytest.mark.long
def test_evaluations_that_were_kept_are_judged_too(
    run: RunFolder, tmp_path: Path, shell: Shell
) -> None:
    """Of a policy, and of a model behind an endpoint, which has words and no tokens."""
    file = tmp_path / "judge.toml"
    file.write_text('[judge.model]\nkind = "scripted"\n')
    shell("evaluate", run.path, "--out", tmp_path / "policy")
    found = shell("judge", tmp_path / "policy", file, "--json").json
    assert found["file"] == "evaluation-evaluated"
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'name = "mine"\nenvironment = { name = "tests.fakes:Capitals" }\n'
        'engine = { name = "openai", model = "m" }\nevaluation = { tasks = 2 }\n'
    )
    with serving(lambda body, number: "Tokyo") as server:
        url = f"engine.url={server.url}"
        shell("evaluate", recipe, url, "--out", tmp_path / "endpoint")
    found = shell("judge", tmp_path / "endpoint", file, "--json").json
    assert len(found["judgements"]) == 2
