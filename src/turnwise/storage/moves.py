"""Runs that go on elsewhere: settings of the machine that `--resume` may change; notes of it."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnwise.config import Recipe, dump_recipe, flattened, load_recipe, parse_override
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from turnwise.storage.checkpoint import Checkpoint

NOTES = "moves.jsonl"
"""The file of a run that has a line for each resume with other settings."""
MOVABLE = (
    "threads",
    "model.device",
    "model.gradient_checkpointing",
    "model.offload_activations",
    "learning.offload_optimizer",
    "learning.tokens_per_micro_batch",
)
"""Keys beside `[cluster]` that say where and in what pieces a run is computed, and not what."""


def moved_recipe(folder: RunFolder, overrides: Sequence[str]) -> Recipe:
    """The recipe of a run that goes on with other settings of the machine. Raises ConfigError for
    any other key or a bad value, and DataError for a damaged run."""
    recipe = folder.recipe()
    for override in overrides:
        key = parse_override(override)[0]
        if key not in MOVABLE and not key.startswith("cluster."):
            if key == "train.steps":
                raise ConfigError(
                    "--resume ends a run as it was begun, and its schedules depend on train.steps: "
                    f"to train longer, begin another one with its weights, `turnwise export "
                    f"{folder.path} --to FOLDER` and `turnwise train RECIPE model.name=FOLDER "
                    "sft.steps=0 --run NEW`"
                )
            raise ConfigError(
                f"--resume goes on with the run's own recipe, in which {key} stays as it is: "
                f"cluster.… may change, {', '.join(MOVABLE[:-1])} and {MOVABLE[-1]}"
            )
    return load_recipe(str(folder.path / "config.toml"), overrides) if overrides else recipe


def keep_moves(folder: RunFolder, recipe: Recipe, saved: "Checkpoint | None") -> None:
    """Write the recipe with which a run goes on, and what has changed; the file keeps its time."""
    before = flattened(folder.recipe().model_dump(mode="json"))
    now = flattened(recipe.model_dump(mode="json"))
    changes = {
        key: {"before": before.get(key), "now": now.get(key)}
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    }
    if changes:
        place = {"step": 0} if saved is None else {"step": saved.step, "stage": str(saved.stage)}
        file = folder.path / "config.toml"
        begun = file.stat().st_mtime_ns
        folder.write_text(file.name, dump_recipe(recipe))
        # The dashboard shows its time as the beginning of the run.
        os.utime(file, ns=(begun, begun))
        folder.append(NOTES, place | {"changes": changes})


def move_sentences(folder: RunFolder) -> list[str]:
    """Say what each resume with other settings has changed, the first one first."""
    return [_sentence(line) for line in folder.lines(NOTES)]


def _sentence(line: Mapping[str, Any]) -> str:
    settings = ", ".join(
        f"{key} = {json.dumps(one['now'])} (before: {json.dumps(one['before'])})"
        for key, one in line["changes"].items()
    )
    return f"resumed after step {line['step']}{_of_stage(line)} with {settings}"


def _of_stage(line: Mapping[str, Any]) -> str:
    stage = str(line.get("stage", "reinforcement"))
    return "" if stage == "reinforcement" else f" of {stage.replace('_', ' ')}"
