"""Runs with mixed-in demonstrations and a teacher go on exactly from any checkpoint.

A killed run is a copy of a whole one without what was written after some checkpoint.
"""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests import small_runs
from tests.fakes import save_small_model
from tests.small_runs import figures, interrupted, write_recipe
from turnwise.config import load_recipe
from turnwise.monitor.display import SilentDisplay, TerminalDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.training.evaluations import Evaluation
from turnwise.training.prepare import prepare
from turnwise.training.run import run as run_stages
from turnwise.training.run import stages_of

TABLES = """
[rollout]
max_turns = 2
max_turn_tokens = 8
max_tokens = 200
[sft]
demonstrations.count = 4
batch_size = 2
demonstrations.behaviours = { faithful = 1 }
[learning]
learning_rate = 1e-3
[train]
steps = 3
tasks_per_step = 2
group_size = 2
checkpoint_every = 1
keep_checkpoints = 9
[evaluation]
tasks = 2
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Letters", TABLES)


def train(recipe: Path, run: Path, *overrides: str) -> RunFolder:
    return small_runs.train(recipe, RunFolder.new(run), *overrides, display=terminal()).folder


def resume(run: RunFolder) -> RunFolder:
    return small_runs.resume(run, terminal()).folder


def terminal() -> TerminalDisplay:
    return TerminalDisplay(Console(stderr=True))


def assert_same(whole: RunFolder, other: RunFolder, last: str) -> None:
    for name in ("metrics.jsonl", "preferences.jsonl", f"checkpoints/{last}/model.safetensors"):
        files = [folder.path / name for folder in (whole, other)]
        assert files[0].exists() is files[1].exists()
        assert not files[0].exists() or files[0].read_bytes() == files[1].read_bytes()
    trained = [figures(folder.evaluation("trained")) for folder in (whole, other)]
    assert trained[0] == trained[1]


@pytest.mark.slow
def test_a_run_whose_contexts_are_summed_up_goes_on_exactly(recipe: Path, tmp_path: Path) -> None:
    sizes = ("rollout.max_turns=5", "rollout.max_tokens=480", "rollout.context=summarise")
    whole = train(recipe, tmp_path / "whole", *sizes)
    lines = whole.lines("metrics.jsonl")
    assert [line["rollout/contexts"] > 1 for line in lines] == [True] * 3
    assert max(line["policy/logprob_gap"] for line in lines) < 1e-4
    rows = read_rows(whole.path / "trajectories" / "step-000003.parquet")
    assert {len(row["contexts"]) for row in rows} > {1}
    assert any(action["summary"] for row in rows for action in json.loads(row["actions"]))
    late = interrupted(whole, tmp_path / "late", "step-000002", "step-000003")
    assert_same(whole, resume(late), "step-000003")


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

    loaded = load_recipe(str(recipe), (*COMPARED, "sft.checkpoint_every=1"))
    folder = RunFolder.new(run)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_stages(prepare(loaded, folder, Killing())))
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


@pytest.mark.wing("algorithms")
@pytest.mark.slow
def test_mixed_in_demonstrations_and_a_teacher_go_on_exactly(recipe: Path, tmp_path: Path) -> None:
    other = save_small_model(tmp_path / "teacher", seed=1)
    options = ("algorithm.name=distillation", f"algorithm.teacher.model={other}")
    mixed = "algorithm.demonstration_coefficient=0.1"
    whole = train(recipe, tmp_path / "whole", *options, mixed)
    for line in whole.lines("metrics.jsonl"):
        assert line["auxiliary/demonstration_tokens"] > 0
        assert line["teacher/reverse_kl"] != 0
    lost = [f"step-00000{step}" for step in (2, 3)]
    assert_same(whole, resume(interrupted(whole, tmp_path / "killed", *lost)), lost[1])


@pytest.mark.slow
def test_a_critic_on_the_policys_own_body_goes_on_exactly(recipe: Path, tmp_path: Path) -> None:
    """From the step in which it was trained alone, too, and with value gradients in the body."""
    options = (
        "algorithm.name=ppo",
        "algorithm.critic.kind=head",
        "algorithm.critic.pretraining_steps=1",
    )
    whole = train(recipe, tmp_path / "whole", *options)
    lines = whole.lines("metrics.jsonl")
    assert ["policy/updates" in line for line in lines] == [False, True, True]
    assert all("critic/explained_variance" in line for line in lines)
    detached = train(recipe, tmp_path / "detached", *options, "algorithm.critic.body_coefficient=0")
    names = [f"checkpoints/step-00000{step}/model.safetensors" for step in (1, 3)]
    same = [
        (whole.path / name).read_bytes() == (detached.path / name).read_bytes() for name in names
    ]
    assert same == [True, False]
    lost = ["step-000002", "step-000003"]
    assert_same(whole, resume(interrupted(whole, tmp_path / "killed", *lost)), lost[1])


@pytest.mark.wing("algorithms")
@pytest.mark.slow
def test_self_distillation_goes_on_exactly(recipe: Path, tmp_path: Path) -> None:
    """The teacher's average is neither the policy nor what the run began with."""
    levels = f"environment.name={small_runs.FAKES}:Levels"
    whole = train(recipe, tmp_path / "whole", levels, "algorithm.name=sdpo", "train.group_size=4")
    lines = whole.lines("metrics.jsonl")
    assert any(line["policy/updates"] for line in lines)
    assert lines[-1]["self_teacher/taught"] > 0
    assert lines[-1]["self_teacher/divergence"] > 0
    lost = ["step-000002", "step-000003"]
    assert_same(whole, resume(interrupted(whole, tmp_path / "killed", *lost)), lost[1])


@pytest.mark.parametrize(
    ("base", "steps", "names"),
    [
        ("true", 1, ["base", "cold_start", "trained"]),
        ("true", 0, ["base", "trained"]),
        ("false", 0, ["cold_start", "trained"]),
        ("tiny", 0, ["cold_start", "trained"]),  # base is another model, and a stage of its own
    ],
)
def test_the_same_weights_are_not_evaluated_twice(base: str, steps: int, names: list[str]) -> None:
    loaded = load_recipe("demo", [f"evaluation.base={base}", f"sft.steps={steps}"])
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
