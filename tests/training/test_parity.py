"""A run whose engine parts from its learner while it trains: it is stopped, and says why."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import FAKES, prepared
from turnwise.config import load_recipe
from turnwise.engines.base import Completion
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import RunStoppedError
from turnwise.storage.run_folder import RunFolder
from turnwise.training.alarms import check_logprob_gap
from turnwise.training.run import run as run_stages

TABLES = """
rollout = { max_turns = 1, max_turn_tokens = 8, max_tokens = 100 }
learning = { learning_rate = 1e-3 }
train = { steps = 3, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 0 }
"""
SHIFT = 0.01


class Parting(EmbeddedEngine):
    """Says of tokens that they were likelier, as soon as one step of learning is done."""

    shift = 0.0

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        await super().load_weights(weights, version)
        self.shift = SHIFT if version else 0.0

    async def generate(self, *arguments: Any, **options: Any) -> Completion:
        found = await super().generate(*arguments, **options)
        return replace(found, logprobs=[each + self.shift for each in found.logprobs])


def train(recipe: Path, run: Path, *overrides: str) -> list[dict[str, Any]]:
    """The steps that were recorded before the run ended, or was stopped."""
    context = prepared(recipe, RunFolder.new(run), *overrides)
    parts, limit = context.components, context.recipe.rollout.max_tokens
    engine = Parting(
        parts.model, parts.tokenizer, max_sequences=4, max_tokens=limit, deterministic=True
    )
    context = replace(context, components=replace(parts, engine=engine))
    asyncio.run(run_stages(context))
    return list(RunFolder(run).lines("metrics.jsonl"))


@pytest.mark.long
@pytest.mark.parametrize("override", ["rollout.top_k=0", "rollout.top_k=200"])
def test_a_gap_beyond_the_bound_stops_the_run_and_says_why(
    recipe: Path, tmp_path: Path, override: str
) -> None:
    """In the first step whose tokens are off, which is kept to be looked at; also where the engine
    leaves tokens out, since it says which."""
    reason = r"policy/logprob_gap is 0\.01 in step 2, and engine\.parity_bound is 0\.001: "
    with pytest.raises(RunStoppedError, match=reason):
        train(recipe, tmp_path / "run", override)
    first, second = RunFolder(tmp_path / "run").lines("metrics.jsonl")
    assert first["policy/logprob_gap"] < 1e-4
    assert second["policy/logprob_gap"] == pytest.approx(SHIFT, rel=0.05)
    assert (tmp_path / "run/checkpoints/step-000002").is_dir()


def test_it_does_not_where_the_recipe_allows_it(recipe: Path, tmp_path: Path) -> None:
    """By a wider bound, or because the engine leaves tokens out and does not say which."""
    overrides = ("engine.parity_bound=0.02", "algorithm.correction=none")
    assert len(train(recipe, tmp_path / "run", *overrides)) == 3
    untold = load_recipe(str(recipe), (f"engine={FAKES}:Untold", "rollout.top_k=200"))
    check_logprob_gap(untold, {"policy/logprob_gap": 1.0}, 1)
    check_logprob_gap(load_recipe(str(recipe)), {}, 1)
    with pytest.raises(RunStoppedError, match="policy/logprob_gap is 1"):
        check_logprob_gap(
            load_recipe(str(recipe), (f"engine={FAKES}:Untold",)), {"policy/logprob_gap": 1.0}, 1
        )
