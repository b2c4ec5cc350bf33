"""docs/reference/metrics.md has the names that a run writes: all of them, and no others."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.fakes import save_chat_model, save_small_mixture
from tests.small_runs import FAKES, write_recipe
from turnwise.api import load_recipe
from turnwise.evaluation.evaluate import summarise
from turnwise.monitor.display import SilentDisplay
from turnwise.monitor.metrics import ROW
from turnwise.parts.resources import Resources
from turnwise.storage.run_folder import RunFolder
from turnwise.training.prepare import prepare
from turnwise.training.run import run as run_stages
from turnwise.types import Outcome, Task, Trajectory

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/metrics.md"

TABLES = """
model.device = "cpu"
rollout = { max_turns = 2, max_turn_tokens = 24, max_tokens = 200 }
sft = { steps = 1, batch_size = 2, demonstrations = { count = 2, behaviours = { mistaken = 1 } } }
train = { steps = 2, tasks_per_step = 2, group_size = 4 }
evaluation = { tasks = 0 }
"""
JUDGE = ROOT / "packages/turnwise-judges/tests/scripted_judge.py"
JOINT = (
    f"environment.name=joint environment.options.environments.letters.name={FAKES}:Letters "
    f"environment.options.environments.capitals.name={FAKES}:Capitals"
)
MEASURED = {
    "critic": f"environment.name={FAKES}:Levels algorithm.name=ppo algorithm.correction=truncated "
    "algorithm.token_filter=clip_cov algorithm.trajectory_filter=overlong "
    "algorithm.reward_shaping=overlong algorithm.kl_coefficient=0.01 algorithm.kl_target=0.1 "
    "algorithm.observation_coefficient=0.1 algorithm.demonstration_coefficient=0.1 "
    "algorithm.success_coefficient=0.1 curriculum=by_success model.dtype=bfloat16 "
    "preferences={steps=1,pairs=4,batch_size=2}",
    "process rewards": "algorithm.name=prime algorithm.group_filter=none model.dtype=bfloat16",
    "reward model": "reward={failure=-1.0,parts={reward_model=0.5}} model.dtype=bfloat16 "
    'reward_model={steps=1,beside_policy=true,heldout_share=0.0,data=["{path}/critic"]}',
    "teacher": "algorithm.name=distillation algorithm.teacher.model.letters={path}/model "
    f"{JOINT} "
    "evaluation.during_rl={every=1,tasks=1}",
    "self-teacher": f"environment.name={FAKES}:Levels algorithm.name=sdpo reward.parts.judge=0.5 "
    'judge={form="rubric",rubric="self_critique",model={kind="scripted"}}',
    "information gain": "algorithm.name=igpo",
    "acceptance": "algorithm.name=mipu",
    "agent": f"agent.run={ROOT}/packages/turnwise-gateway/tests/asking_agent.py:with_roles "
    "agent.roles.planner.policy=trained agent.roles.worker.policy=frozen agent.credit=role "
    "rollout.max_turn_tokens=12 sft.steps=0",
    "greedy episodes": f"{JOINT} "
    "algorithm.name=remax sft.steps=0 rollout.max_turns=4 rollout.max_turn_tokens=8 "
    "rollout.context=drop rollout.horizon.turns=3 "
    "rollout.temperature_schedule={temperature=0.9,to_step=2} "
    "monitor.mutual_information.every=2 monitor.gradient_variance_every=2",
    "refinement": f"environment.name={FAKES}:Levels engine={JUDGE}:ScriptedJudge "
    "rollout={max_turns=1,max_turn_tokens=60,max_tokens=900} reward.parts.judge=0.1 "
    'judge={form="pairwise",max_characters=400,model={kind="policy",max_tokens=60}} '
    "judge.refinement={requests=2,replies=4} sft.steps=0 model.name={path}/chat "
    "train={steps=1,tasks_per_step=4,group_size=2}",
    "mixture of experts": "rollout.max_turn_tokens=12 rollout.routing_replay=true sft.steps=0 "
    "model.name={path}/mixture",
    "sampling ahead": f"environment.name={FAKES}:Reporting reward.parts={{each=0.1,judge=0.1}} "
    'judge={form="pairwise",model={kind="scripted"}} engine.deterministic=false '
    "train.max_staleness=1 train.oversample=1",
}
"""What is measured together; what cannot be has a run of its own."""
UNMEASURED = {"rollout/tool_success", "rollout/recovered"}
"""A random model calls no tool."""
PARTS = ("reward/parts/", "reward/turn_parts/", "reward/multipliers/")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Short runs in which everything that can be measured is."""
    from cluster_tests.workers.fleet import Fleet
    from turnwise_cluster.workers.pool import WorkerPool

    path = tmp_path_factory.mktemp("page")
    save_chat_model(path / "chat"), save_small_mixture(path / "mixture")
    recipe, found = write_recipe(path, "Letters", TABLES), []
    for name, changes in MEASURED.items():
        folder = RunFolder.new(path / name)
        loaded = load_recipe(recipe, *changes.replace("{path}", str(path)).split())
        pool = WorkerPool(Fleet(), 1, 30.0) if name == "process rewards" else None
        asyncio.run(run_stages(prepare(loaded, folder, SilentDisplay(), Resources(pool))))
        found.append(folder)
    return found


@pytest.mark.wing("algorithms")
@pytest.mark.wing("cluster")
@pytest.mark.wing("gateway")
@pytest.mark.wing("judges")
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "metrics.jsonl",
        "validation.jsonl",
        "timing.jsonl",
        "cold_start.jsonl",
        "preferences.jsonl",
        "reward_model.jsonl",
    ],
)
def test_the_page_has_the_names_that_are_written(folders: list[RunFolder], file: str) -> None:
    section = PAGE.read_text().partition(f"## {file}\n")[2].partition("\n## ")[0]
    named = [
        name for row in ROW.finditer(section) for name in re.findall(r"`([^`]+)`", row["names"])
    ]
    assert len(named) == len(set(named))
    written = {
        re.sub("^(environment|role|teacher)/[a-z]+/", r"\1/NAME/", name)
        for folder in folders
        for line in folder.lines(file)
        for name in line
    }
    outcomes = {name for name in written if name.startswith("outcome/")}
    assert outcomes <= {f"outcome/{outcome}" for outcome in Outcome}
    parts = {name for name in written if name.startswith(PARTS)}
    assert bool(parts) is (file == "metrics.jsonl")
    apart = {"outcome/NAME", *(f"{prefix}NAME" for prefix in PARTS)} | UNMEASURED
    assert set(named) - apart == written - outcomes - parts - apart


def test_the_page_has_the_figures_of_an_evaluation() -> None:
    """Some are added where a run writes them, or where it is judged again."""
    added = ["cost", "disagreements", "environment", "recovery", "seconds", "step", "verifier"]
    added += ["best@k", "best_by", "latency"]  # with evaluation.best_of
    episodes = [Trajectory(Task("a", "?"), "a", episode, 0) for episode in range(2)]
    section = PAGE.read_text().partition("## evaluations/*.json\n")[2].partition("\n## ")[0]
    named = [
        name for row in ROW.finditer(section) for name in re.findall(r"`([^`]+)`", row["names"])
    ]
    assert sorted(named) == sorted([*summarise(episodes), *added])
