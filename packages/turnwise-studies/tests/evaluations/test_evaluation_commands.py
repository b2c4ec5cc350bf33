"""Evaluations judged again and played elsewhere, on runs of a small random model."""

from pathlib import Path

import pytest

from tests import small_runs
from tests.chat_server import serving
from tests.commands.shell import Shell
from tests.small_runs import FAKES, write_recipe
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise_studies.evaluations.rescoring import rescore_run

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 2, episodes_per_task = 2, temperature = 1.0 }
"""


ENDPOINT = """
name = "mine"
environment.name = "tests.fakes:Capitals"
engine = { name = "openai", url = "http://127.0.0.1:9/v1", model = "m" }
rollout.max_turns = 3
evaluation.tasks = 2
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is finished, of an environment whose success is never seen."""
    folder = tmp_path_factory.mktemp("runs")
    small_runs.train(write_recipe(folder, "Letters", TABLES), RunFolder.new(folder / "run"))
    return folder / "run"


VERIFIER = """
def wrote_something(trajectory):
    return trajectory.episode == 0 and bool(trajectory.written)
"""


@pytest.mark.long
def test_a_run_is_judged_again_beside_its_report(shell: Shell, run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(VERIFIER)
    found = shell("rescore", run, "--verifier", f"{mine}:wrote_something", "--json").json
    assert (found["n"], found["successes"], len(found["disagreements"])) == (4, 2, 2)
    assert RunFolder(run).evaluation("rescored-trained") == found
    assert RunFolder(run).evaluation("trained")["successes"] == 0
    shown = shell("rescore", run, "--verifier", f"{mine}:wrote_something").out
    assert "2 of 4 verdicts differ" in shown
    (against,) = shell("compare-runs", run, f"{run}@rescored-trained", "--json").json
    assert (against["only_first"], against["only_second"]) == (0, 2)
    shown = shell("show", run, "--step", "evaluation-rescored-trained").out
    assert "evaluation-rescored-trained: 2 held-out tasks, 4 episodes" in shown
    same = shell("rescore", run, "--evaluation", "cold_start", "--json").json
    assert same["disagreements"] == []
    shown = shell("rescore", run, "--evaluation", "cold_start").out
    assert "no verdict differs" in shown
    assert "unknown evaluation" in shell("rescore", run, "--evaluation", "x", code=2).err
    other = shell("rescore", run, f"environment.name={FAKES}:Levels", code=2).err
    assert "4 of 4 episodes are of tasks that the environment does not have" in other


@pytest.mark.long
def test_worse_conditions_are_compared_with_those_of_training_and_judged_again(
    shell: Shell, run: Path, tmp_path: Path
) -> None:
    said = "scaffold.options.instructions=Say: "
    worse = ("--inject", "error=0.5", "--without-instructions")
    kept = tmp_path / "kept"
    found = shell("evaluate", run, said, *worse, "--out", kept, "--json").json
    assert list(found) == ["as_trained", "tool_failures", "without_instructions", "comparisons"]
    assert {part["n"] for part in list(found.values())[:3]} == {4}
    assert found["tool_failures"]["recovery"]["failures"] == {"error": 0, "junk": 0}
    assert [one["second"] for one in found["comparisons"]] == list(found)[1:3]
    assert all(one["same_seeds"] for one in found["comparisons"])
    assert list(RunFolder.open(kept).evaluations()) == list(found)[:3]
    assert RunFolder.open(kept).report()["comparisons"] == found["comparisons"]
    (again,) = shell("compare-runs", kept, f"{kept}@tool_failures", "--json").json
    assert again["same_seeds"]
    shown = shell("evaluate", run, "--inject", "junk=1").out
    assert "no tool call was made to fail" in shown
    refused = shell("evaluate", run, "--without-instructions", code=2).err
    assert "no instructions that could be left out" in refused
    assert "as trained" not in refused  # nothing was played
    assert "unknown failure" in shell("evaluate", run, "--inject", "eror=1", code=2).err
    failing = ("rescore", kept, "--evaluation", "tool_failures")
    assert "tools that were made to fail" in shell(*failing, code=2).err
    mine = tmp_path / "mine.py"
    mine.write_text(VERIFIER)
    own = ("--verifier", f"{mine}:wrote_something")
    assert shell(*failing, *own, "--json").json["successes"] == 2
    bare = shell("rescore", kept, "--evaluation", "without_instructions", "--json").json
    assert bare["disagreements"] == []


@pytest.mark.long
def test_an_evaluation_in_a_folder_of_its_own_is_judged_again(
    shell: Shell, run: Path, tmp_path: Path
) -> None:
    newest = tmp_path / "newest"
    shell("evaluate", run, "--out", newest)
    assert "no verdict differs" in shell("rescore", newest).out
    assert "evaluation-evaluated:" in shell("show", newest).out, "the first one stands for it"


def test_words_of_an_endpoint_are_judged_again(shell: Shell, tmp_path: Path) -> None:
    recipe, folder = tmp_path / "mine.toml", tmp_path / "kept"
    recipe.write_text(ENDPOINT)
    with serving(lambda _body, _number: "Tokyo") as server:
        shell("evaluate", recipe, f"engine.url={server.url}", "--out", folder)
    assert "no verdict differs" in shell("rescore", folder).out


@pytest.mark.long
def test_a_part_that_a_reward_model_has_is_left_out(run: Path, tmp_path: Path) -> None:
    data = f'reward_model.data=["{run}"]'
    learned = ("reward_model.steps=1", "reward_model.batch_size=4")
    used = ("reward.parts.reward_model=0.5", "evaluation.best_of=reward_model")
    folder = RunFolder.new(tmp_path / "run")
    small_runs.train(run / "config.toml", folder, data, *learned, *used)
    with pytest.raises(ConfigError, match=r"\(reward_model\): leave it out with (.*)") as refused:
        rescore_run(folder, [], "trained", None)
    advice = str(refused.value).partition("leave it out with ")[2].split()
    assert rescore_run(folder, advice, "trained", None)["disagreements"] == []


@pytest.mark.long
def test_a_policy_is_played_in_the_environments_of_others(
    shell: Shell, run: Path, tmp_path: Path
) -> None:
    levels = tmp_path / "levels.toml"
    levels.write_text(
        f'name = "levels"\n[environment]\nname = "{FAKES}:Levels"\n'
        "[rollout]\nmax_turns = 1\nmax_turn_tokens = 8\nmax_tokens = 100\n"
        "[evaluation]\ntasks = 2\n"
    )
    places = ("--environments", f"{levels},{run}")
    found = shell("transfer", run, *places, "evaluation.seed=3", "--json").json
    (row,) = found.values()
    assert [part["n"] for part in row.values()] == [2, 4]
    assert [part["turns"] for part in row.values()] == [1, 2]
    shown = shell("transfer", run, "--environments", str(levels)).out
    assert "success in the environments of" in shown
    assert "not a run folder" in shell("transfer", tmp_path, *places, code=2).err
    assert "give a run or more" in shell("transfer", "evaluation.tasks=1", *places, code=2).err
