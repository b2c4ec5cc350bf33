"""A small model trains through every scaffold, with exact masks: what was sampled is what is
trained, and the trainer finds the engine's log-probabilities again."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turnwise
from tests.scaffolds.families import save_family_model
from tests.small_runs import train, write_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import Source

ENVIRONMENT = f"{Path(__file__).with_name('families.py')}:Talk"
TABLES = """
rollout = { max_turns = 6, max_turn_tokens = 40 }
sft = { steps = 1, batch_size = 2, demonstrations = { count = 2, behaviours = { hasty = 1 } } }
train = { steps = 1, tasks_per_step = 1, group_size = 3 }
evaluation = { tasks = 0 }
"""
CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("tags", "qwen3", "fail", {"instructions": "", "parallel_calls": True}),
    ("react", "qwen3", "drop", {"instructions": ""}),
    ("code", "qwen3", "truncate", {"instructions": ""}),
    ("renderers", "qwen3", "summarise", {"family": "qwen3"}),
    ("renderers", "llama-3", "drop", {"family": "llama-3"}),
    ("renderers", "glm-4.5", "fail", {"family": "glm-4.5"}),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "family", "context", "options"),
    [
        CASES[0],
        *(
            pytest.param(*case, marks=(pytest.mark.slow, pytest.mark.wing("environments")))
            for case in CASES[1:]
        ),
    ],
)
def test_one_step_with_the_cold_start_before_it(
    tmp_path: Path, name: str, family: str, context: str, options: dict[str, Any]
) -> None:
    if name == "renderers" and importlib.util.find_spec("renderers") is None:
        pytest.skip("needs the extra renderers")
    room = {"qwen3": 1250, "llama-3": 1100, "glm-4.5": 1700}[family] if name == "renderers" else 420
    model = save_family_model(tmp_path / "model", family)
    options = {"scaffold": {"name": name, "options": options}, "model.device": "cpu"}
    sizes = {"rollout.context": context, "rollout.max_tokens": room}
    recipe = write_recipe(tmp_path, ENVIRONMENT, TABLES, model)
    folder = RunFolder.new(tmp_path / "run")
    train(turnwise.load_recipe(recipe, options, sizes), folder)
    (line,) = folder.lines("metrics.jsonl")
    assert line["policy/updates"] == 1
    assert line["policy/gradient_norm"] > 0
    assert line["policy/logprob_gap"] < 1e-4
    rows = read_rows(folder.path / "trajectories" / "step-000001.parquet")
    for row in rows:
        mask = np.array(row["source"]) == Source.MODEL
        assert mask.any()
        assert mask.tolist() == [not np.isnan(logprob) for logprob in row["logprob"]]
        assert mask.tolist() == [version != -1 for version in row["version"]]
    assert ("rollout/contexts" in line) == any(len(row["contexts"]) > 1 for row in rows)
    assert ("rollout/contexts" in line) == (context != "fail")
    demonstrated = read_rows(folder.path / "trajectories" / "demonstrations.parquet")
    assert {row["answer"] for row in demonstrated} <= {"Paris", "Rome"}
