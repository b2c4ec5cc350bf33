"""A run that learns nothing says so from the first step: to people, in its log, in its report."""

import asyncio
import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import Listening, prepared, train
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import RunStoppedError
from turnwise.monitor import no_signal
from turnwise.rollout.pipeline import StalenessError
from turnwise.storage.run_folder import RunFolder
from turnwise.training.run import run as run_stages

TABLES = """
rollout = { max_turns = 1, max_turn_tokens = 16, max_tokens = 200 }
learning = { learning_rate = 0.01 }
train = { steps = 2, tasks_per_step = 1, group_size = 4 }
evaluation = { tasks = 0 }
"""
PARTS = Path(__file__).with_name("silent_parts.py")
ALWAYS = f'scaffold={{name="{PARTS}:Always",options={{instructions="",answer="%s"}}}}'
CALLS = ALWAYS % ""
NO_GRADES = "rollout.max_ungraded_share=1"


class Deaf(EmbeddedEngine):
    """Samples with the weights that it began with, whatever it is given; it may say so."""

    honest = False

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        if not (self.honest and version):
            await super().load_weights({}, version)


def environment(name: str, **options: Any) -> str:
    """An override that names an environment of `silent_parts.py`."""
    told = ",".join(f"{key}={json.dumps(value)}" for key, value in options.items())
    return f'environment={{name="{PARTS}:{name}",options={{{told}}}}}'


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ((environment("Capitals"),), no_signal.ALL_MALFORMED),
        ((environment("Capitals"), ALWAYS % "Bern"), no_signal.ALL_FAILED),
        (
            (environment("Capitals"), ALWAYS % "Paris", "train.tasks_per_step=2"),
            no_signal.ALL_EQUAL,
        ),
        ((environment("Curt"), ALWAYS % "Paris"), no_signal.ALL_SOLVED),
        ((environment("Capitals"), CALLS, "rollout.max_turns=2"), no_signal.ALL_TRUNCATED),
        ((environment("Wordy"), CALLS, "rollout.max_turns=2"), no_signal.NO_ROOM),
        ((environment("Curt"), CALLS, "rollout.max_turns=2"), no_signal.ANSWERS_CUT),
        ((environment("Unjudged", every=True), NO_GRADES), no_signal.UNGRADED),
        ((environment("Unjudged"), NO_GRADES), no_signal.MOSTLY_UNGRADED),
        (("learning.learning_rate=1e-12",), no_signal.UNMOVED),
        (("learning.warmup_steps=10000000000",), no_signal.LOW_RATE),
        (("model.dtype=bfloat16", "learning.learning_rate=3e-9"), no_signal.ROUNDED_AWAY),
    ],
)
def test_a_real_run_says_why(
    recipe: Path, tmp_path: Path, overrides: tuple[str, ...], why: str
) -> None:
    folder, listener = RunFolder.new(tmp_path / "run"), Listening()
    train(recipe, folder, "model.device=cpu", *overrides, display=listener)
    said = [line for line in listener.said if "no learning signal" in line]
    assert said == [f"warning: no learning signal in RL step 1: {why}"]
    assert folder.lines("no_signal.jsonl") == [{"step": n, "reason": why} for n in (1, 2)]
    assert any(f"nothing learned: {why.partition(': ')[0]}" in line for line in listener.progress)


@pytest.mark.long
@pytest.mark.parametrize(
    ("honest", "error", "why"),
    [
        (False, RunStoppedError, no_signal.UNDELIVERED),
        (True, StalenessError, no_signal.BEYOND_BOUND),
    ],
)
def test_weights_that_never_arrive(
    recipe: Path, tmp_path: Path, honest: bool, error: type[Exception], why: str
) -> None:
    """An engine over a copy that stays what it was is found in the first step after an update."""
    folder, listener = RunFolder.new(tmp_path / "run"), Listening()
    context = prepared(recipe, folder, "model.device=cpu", display=listener)
    parts, limit = context.components, context.recipe.rollout.max_tokens
    engine = Deaf(
        copy.deepcopy(parts.model),
        parts.tokenizer,
        max_sequences=4,
        max_tokens=limit,
        deterministic=True,
    )
    engine.honest = honest
    context = replace(context, components=replace(parts, engine=engine))
    with pytest.raises(error):
        asyncio.run(run_stages(context))
    assert folder.lines("no_signal.jsonl") == [{"step": 2, "reason": why}]
    assert f"warning: no learning signal in RL step 2: {why}" in listener.said


@pytest.mark.long
def test_a_run_that_learns_says_nothing(recipe: Path, tmp_path: Path) -> None:
    folder, listener = RunFolder.new(tmp_path / "run"), Listening()
    train(recipe, folder, "model.device=cpu", display=listener)
    assert not folder.lines("no_signal.jsonl")
    assert not [line for line in listener.said if "no learning signal" in line]
    assert "Learning signal" not in (folder.path / "report.md").read_text()


@pytest.mark.long
def test_the_report_counts_the_steps_of_each_reason(recipe: Path, tmp_path: Path) -> None:
    """The run is long enough for an Echo Trap, which is not what it has."""
    folder, listener = RunFolder.new(tmp_path / "run"), Listening()
    train(
        recipe,
        folder,
        "model.device=cpu",
        environment("Capitals"),
        "train.steps=7",
        display=listener,
    )
    why = no_signal.ALL_MALFORMED
    assert listener.said[1:] == [f"warning: no learning signal in RL step 1: {why}"]
    report = json.loads((folder.path / "report.json").read_text())
    found = {"steps": 7, "without": 7, "reasons": {why: 7}, "when": {why: "1-7"}}
    assert report["learning_signal"] == found
    assert f"| 7 | 1-7 | {why} |" in (folder.path / "report.md").read_text()
