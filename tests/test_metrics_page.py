"""docs/reference/metrics.md has the names that a run writes: all of them, and no others."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import save_chat_model, save_small_mixture, save_small_model
from turnwise.config import check_recipe
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


MISTAKEN = {"mistaken": 1}
"""What the oracle does here is no success."""
FAKES = Path(__file__).with_name("fakes.py")
JUDGE = ROOT / "packages/turnwise-judges/tests/scripted_judge.py"
MEASURED: dict[str, dict[str, Any]] = {
    "critic": {
        "environment": {"name": f"{FAKES}:Levels"},
        "algorithm": {
            "name": "ppo",
            "correction": "truncated",
            "token_filter": "clip_cov",
            "trajectory_filter": "overlong",
            "reward_shaping": "overlong",
            "kl_coefficient": 0.01,
            "kl_target": 0.1,
            "observation_coefficient": 0.1,
            "demonstration_coefficient": 0.1,
            "success_coefficient": 0.1,
        },
        "curriculum": {"kind": "by_success"},
        "preferences": {"steps": 1, "pairs": 4, "batch_size": 2},
    },
    "process rewards": {
        "algorithm": {"name": "prime", "group_filter": "none"},
    },
    "reward model": {
        "reward": {"failure": -1.0, "parts": {"reward_model": 0.5}},
        "reward_model": {"steps": 1, "beside_policy": True, "heldout_share": 0.0},
    },
    "teacher": {
        "algorithm": {"name": "distillation"},
        "evaluation": {"tasks": 0, "during_rl": {"every": 1, "tasks": 1}},
    },
    "self-teacher": {
        "environment": {"name": f"{FAKES}:Levels"},
        "algorithm": {"name": "sdpo"},
        "judge": {
            "form": "rubric",
            "rubric": "self_critique",
            "model": {"kind": "scripted"},
        },
        "reward": {"parts": {"judge": 0.5}},
    },
    "information gain": {"algorithm": {"name": "igpo"}},
    "agent": {
        "agent": {
            "run": f"{ROOT / 'packages/turnwise-gateway/tests/asking_agent.py'}:with_roles",
            "roles": {"planner": {"policy": "trained"}, "worker": {"policy": "frozen"}},
            "credit": "role",
        },
        "rollout": {"max_turns": 2, "max_turn_tokens": 12, "max_tokens": 200},
        "sft": {"steps": 0},
    },
    "greedy episodes": {
        "environment": {
            "name": "joint",
            "options": {
                "environments": {
                    "letters": {"name": f"{FAKES}:Letters"},
                    "capitals": {"name": f"{FAKES}:Capitals"},
                }
            },
        },
        "algorithm": {"name": "remax"},
        "sft": {"steps": 0},
        "rollout": {
            "max_turns": 4,
            "max_turn_tokens": 8,
            "max_tokens": 200,
            "context": "drop",
            "horizon": {"turns": 3},
            "temperature_schedule": {"temperature": 0.9, "to_step": 2},
        },
        "monitor": {"mutual_information": {"every": 2}, "gradient_variance_every": 2},
    },
    "refinement": {
        "environment": {"name": f"{FAKES}:Levels"},
        "engine": {"name": f"{JUDGE}:ScriptedJudge"},
        "rollout": {"max_turns": 1, "max_turn_tokens": 60, "max_tokens": 900},
        "reward": {"parts": {"judge": 0.1}},
        "judge": {
            "form": "pairwise",
            "max_characters": 400,
            "model": {"kind": "policy", "max_tokens": 60},
            "refinement": {"requests": 2, "replies": 4},
        },
        "sft": {"steps": 0},
        "train": {"steps": 1, "tasks_per_step": 4, "group_size": 2},
    },
    "mixture of experts": {
        "rollout": {
            "max_turns": 2,
            "max_turn_tokens": 12,
            "max_tokens": 200,
            "routing_replay": True,
        },
        "sft": {"steps": 0},
    },
    "sampling ahead": {
        "environment": {"name": f"{FAKES}:Reporting"},
        "reward": {"parts": {"each": 0.1, "judge": 0.1}},
        "judge": {"form": "pairwise", "model": {"kind": "scripted"}},
        "engine": {"deterministic": False},
        "train": {
            "steps": 2,
            "tasks_per_step": 2,
            "group_size": 4,
            "max_staleness": 1,
            "oversample": 1,
        },
    },
}
"""What is measured together; what cannot be has a run of its own."""
UNMEASURED = {"rollout/tool_success", "rollout/recovered"}
"""A random model calls no tool."""
PARTS = ("reward/parts/", "reward/turn_parts/", "reward/multipliers/")
ROUNDED = ("critic", "process rewards", "reward model")
"""In bfloat16, where weights are rounded."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Short runs in which everything that can be measured is."""
    from cluster_tests.workers.fleet import Fleet
    from turnwise_cluster.workers.pool import WorkerPool

    path = tmp_path_factory.mktemp("page")
    model = str(save_small_model(path / "model"))
    found = []
    for name, sections in MEASURED.items():
        values: dict[str, Any] = {
            "name": "page",
            "threads": 1,
            "model": {"name": model, "device": "cpu"},
            "environment": {"name": f"{FAKES}:Letters"},
            "scaffold": {"options": {"instructions": ""}},
            "rollout": {"max_turns": 2, "max_turn_tokens": 24, "max_tokens": 200},
            "sft": {
                "steps": 1,
                "batch_size": 2,
                "demonstrations": {"count": 2, "behaviours": MISTAKEN},
            },
            "train": {"steps": 2, "tasks_per_step": 2, "group_size": 4},
            "evaluation": {"tasks": 0},
        }
        if name in ROUNDED:
            values["model"]["dtype"] = "bfloat16"
        if name == "reward model":
            sections["reward_model"]["data"] = [str(path / "critic")]
        if name == "refinement":
            values["model"]["name"] = str(save_chat_model(path / "chat"))
        if name == "mixture of experts":
            values["model"]["name"] = str(save_small_mixture(path / "mixture"))
        if name == "teacher":
            sections["algorithm"]["teacher"] = {"model": model}
        folder = RunFolder.new(path / name)
        recipe = check_recipe(values | sections, "test")
        pool = WorkerPool(Fleet(), 1, 30.0) if name == "process rewards" else None
        asyncio.run(run_stages(prepare(recipe, folder, SilentDisplay(), Resources(pool))))
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
        re.sub("^(environment|role)/[a-z]+/", r"\1/NAME/", name)
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
