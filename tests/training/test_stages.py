"""The stages of a run: imitation beside RL, and which evaluations there are."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests import small_runs
from tests.small_runs import figures
from turnwise.config import load_recipe
from turnwise.monitor.display import SilentDisplay, TerminalDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.training.evaluations import Evaluation
from turnwise.training.run import stages_of

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
sft = { demonstrations = { count = 4, behaviours = { faithful = 1 } }, batch_size = 2 }
learning = { learning_rate = 1e-3 }
train.steps = 3
train.tasks_per_step = 2
train.group_size = 2
train.checkpoint_every = 1
train.keep_checkpoints = 9
evaluation = { tasks = 2 }
"""


def train(recipe: Path, run: Path, *overrides: str) -> RunFolder:
    return small_runs.train(recipe, RunFolder.new(run), *overrides, display=terminal()).folder


def resume(run: RunFolder) -> RunFolder:
    return small_runs.resume(run, terminal()).folder


def terminal() -> TerminalDisplay:
    return TerminalDisplay(Console(stderr=True))


COMPARED = ("evaluation.base=true", "evaluation.sft=true", "sft.steps=2", "train.steps=1")


@pytest.mark.slow
def test_untrained_weights_and_imitation_alone_are_evaluated(recipe: Path, tmp_path: Path) -> None:
    """Before everything, and with as many updates as the run makes, from the same weights."""
    run = train(recipe, tmp_path / "run", *COMPARED, "sft.checkpoint_every=1")
    plain = train(recipe, tmp_path / "plain", "sft.steps=2", "train.steps=1")
    names = list(json.loads((run.path / "report.json").read_text()))
    assert names[2:6] == ["base", "cold_start", "sft", "trained"]
    assert figures(run.evaluation("trained")) == figures(plain.evaluation("trained"))
    base, cold = (
        read_rows(run.path / "trajectories" / f"evaluation-{name}.parquet")
        for name in ("base", "cold_start")
    )
    assert [row["ids"] for row in base] != [row["ids"] for row in cold]
    imitated, begun = run.lines("imitation.jsonl"), run.lines("cold_start.jsonl")
    assert [line["step"] for line in imitated] == [1, 2, 3]
    assert imitated[0]["sft/loss"] == begun[0]["sft/loss"]
    assert imitated[2]["sft/loss"] < imitated[0]["sft/loss"]
    assert not (run.path / "checkpoints" / "imitation").exists()


def killed_while_imitating(recipe: Path, run: Path) -> RunFolder:
    """A run that ended after the second checkpoint of its imitation."""

    class Killing(SilentDisplay):
        def phase(self, name: str, steps: int) -> None:
            self.name, self.steps = name, 0

        def advance(self, text: str = "") -> None:
            self.steps += 1
            if (self.name, self.steps) == ("imitation", 3):  # before the third is saved
                raise KeyboardInterrupt

    folder = RunFolder.new(run)
    with pytest.raises(KeyboardInterrupt):
        small_runs.train(recipe, folder, *COMPARED, "sft.checkpoint_every=1", display=Killing())
    assert folder.evaluation("sft") is None
    return folder


@pytest.mark.slow
def test_a_run_that_was_killed_while_imitating_goes_on_exactly(
    recipe: Path, tmp_path: Path
) -> None:
    whole = train(recipe, tmp_path / "whole", *COMPARED)
    other = resume(killed_while_imitating(recipe, tmp_path / "killed"))
    assert other.lines("imitation.jsonl") == whole.lines("imitation.jsonl")
    assert figures(other.evaluation("sft")) == figures(whole.evaluation("sft"))
    reports = [json.loads((run.path / "report.json").read_text()) for run in (whole, other)]
    assert figures(reports[0]["base"]) == figures(reports[1]["base"])


@pytest.mark.slow
def test_imitation_goes_on_from_before_a_damaged_checkpoint(recipe: Path, tmp_path: Path) -> None:
    folder = killed_while_imitating(recipe, tmp_path / "killed")
    before = folder.lines("imitation.jsonl")
    weights = folder.checkpoints / "imitation/step-000002/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    display = small_runs.Listening()
    small_runs.resume(RunFolder.open(folder.path), display)
    told = "model.safetensors is damaged; it is kept as step-000002.damaged"
    assert any(told in line for line in display.said)
    lines = folder.lines("imitation.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[:2] == before[:2]
    assert folder.evaluation("sft") is not None


@pytest.mark.parametrize(
    ("base", "imitation", "rl", "names"),
    [
        ("true", 1, 1, ["base", "cold_start", "trained"]),
        ("true", 0, 1, ["base", "trained"]),
        ("false", 0, 1, ["cold_start", "trained"]),
        ("tiny", 0, 1, ["cold_start", "trained"]),  # base is another model, and a stage of its own
        ("false", 1, 0, ["trained"]),
        ("false", 0, 0, ["trained"]),
    ],
)
def test_the_same_weights_are_not_evaluated_twice(
    base: str, imitation: int, rl: int, names: list[str]
) -> None:
    steps = [f"sft.steps={imitation}", f"train.steps={rl}", "evaluation.sft=false"]
    loaded = load_recipe("demo", [f"evaluation.base={base}", *steps])
    components = SimpleNamespace(environment=SimpleNamespace(ablations=dict), player=None)
    context = SimpleNamespace(recipe=loaded, components=components)
    found = [stage.name for stage in stages_of(context) if isinstance(stage, Evaluation)]
    assert found == names


@pytest.mark.parametrize(("wanted", "names"), [("true", ["no_search"]), ("false", [])])
def test_ablations_are_evaluated_where_the_recipe_asks(wanted: str, names: list[str]) -> None:
    loaded = load_recipe("demo", [f"evaluation.ablations={wanted}"])
    environment = SimpleNamespace(ablations=lambda: {"no_search": environment})
    context = SimpleNamespace(
        recipe=loaded, components=SimpleNamespace(environment=environment, player=None)
    )
    found = [stage.name for stage in stages_of(context) if isinstance(stage, Evaluation)]
    assert found[found.index("trained") + 1 :] == names
