"""The recipe for a real model on one GPU goes through with a random model in its place."""

from pathlib import Path

import pytest

import turnwise
from tests.fakes import save_small_model

RECIPE = Path(__file__).parents[2] / "examples" / "qwen3.toml"
SMALL = {
    "model.device": "cpu",
    "rollout.max_turn_tokens": 8,
    "rollout.max_tokens": 500,
    "scaffold.options.instructions": "",
    "train.steps": 1,
    "train.tasks_per_step": 2,
    "train.group_size": 2,
    "evaluation.tasks": 2,
    "evaluation.during_rl.every": 1,
    "evaluation.during_rl.tasks": 2,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_the_recipe_trains_adapters(tmp_path: Path) -> None:
    model = save_small_model(tmp_path / "model")
    small = {"model.name": str(model), "threads": 1, **SMALL}
    report = turnwise.train(RECIPE, small, run=tmp_path / "run", progress=False)
    assert report["trained"]["n"] == 2
    trained = list((tmp_path / "run/checkpoints/step-000001").rglob("adapter_model.safetensors"))
    assert len(trained) == 1
