"""How a run is prepared: its parts are built and checked, and its newest checkpoint is found.

Not here: what the stages share (`context.py`), and the checks themselves (`checks.py`).
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.algorithms.registry import make_algorithm
from turnwise.cluster.hiring import Hired
from turnwise.config import Recipe
from turnwise.environments.splits import check_splits
from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.evaluate import choose_tasks
from turnwise.monitor.display import Display
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint, StageName
from turnwise.storage.run_folder import RunFolder
from turnwise.training.checks import check_parts, check_recipe_and_algorithm
from turnwise.training.components import Components, build_components
from turnwise.training.context import Demonstrations, RunContext
from turnwise.training.reward_data import check_sources
from turnwise.types import Task


def prepare(
    recipe: Recipe, folder: RunFolder, display: Display, hired: Hired | None = None
) -> RunContext:
    """Build the parts of a run, which goes on from the folder's newest checkpoint if it has one.
    Processes that are `hired` do a part of it; without them, this process does all.

    Raises ConfigError or DataError for what cannot work, before anything is written.
    """
    begun, hired = time.monotonic(), hired or Hired()
    folder.check_run()
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    check_recipe_and_algorithm(recipe, algorithm)
    if folder.fresh and recipe.reward_model is not None:
        check_sources(recipe.reward_model.data, folder.path)
    saved = (
        None if folder.fresh else _newest_checkpoint(folder, recipe.train.keep_checkpoints, display)
    )
    weights = saved.folder if saved is not None else None
    others = (hired.workers, hired.samplers, hired.servers)
    components = build_components(recipe, weights, folder.path, *others)
    recipe = components.recipe  # with the type that the update is computed in, and the date
    learned = recipe.train.steps + recipe.sft.steps + recipe.preferences.steps
    tasks = _tasks(components, "train", learned)
    check_parts(components, algorithm, tasks)
    heldout, validation = _heldout(components)
    check_splits(components.environment, tasks, [*heldout, *validation])
    folder.begin(recipe)
    folder.write_tokenizer(components.tokenizer)
    if saved is not None:
        begun -= saved.state["seconds"]
    demonstrations = Demonstrations(recipe, components, folder, display, tasks)
    return RunContext(
        recipe,
        algorithm,
        components,
        folder,
        display,
        tasks,
        heldout,
        validation,
        demonstrations,
        saved,
        hired,
        begun,
    )


def set_aside(damaged: Mapping[Path, str], display: Display) -> None:
    """Rename damaged checkpoints, and name each."""
    for folder, problem in damaged.items():
        kept = checkpoint.set_aside(folder)
        display.say(f"warning: {problem}; it is kept as {kept.name}")


def _newest_checkpoint(folder: RunFolder, keep: int, display: Display) -> Checkpoint | None:
    """Find where to go on; damaged checkpoints after it are set aside, and what a killed process
    has left is deleted."""
    found, damaged = checkpoint.newest(folder.checkpoints)
    set_aside(damaged, display)
    for stage in StageName:
        checkpoint.delete_drafts(root := checkpoint.root_of(folder.checkpoints, stage))
        if stage is not StageName.REINFORCEMENT:  # which keeps its best one too
            checkpoint.prune(root, keep)
    if found is not None:
        checkpoint.check_learner(found.folder)
    if found is not None and damaged:
        display.say(f"warning: the run goes on from {found.folder}, the one before")
    return found


def _heldout(components: Components) -> tuple[Sequence[Task], Sequence[Task]]:
    """The tasks of evaluation and those of evaluations during RL, without any in common. Raises
    ConfigError where there are too few for both."""
    config = components.recipe.evaluation
    during = config.during_rl.tasks if config.during_rl is not None else 0
    found = _tasks(components, "heldout", config.tasks + during)
    chosen = choose_tasks(found, config.tasks + during, config.seed)
    if during and len(chosen) < config.tasks + during:
        raise ConfigError(
            f"evaluation.tasks = {config.tasks} and evaluation.during_rl.tasks = {during} have no "
            f"task in common, and there are {len(found)} held-out tasks: lower one of them"
        )
    return chosen[: config.tasks], chosen[config.tasks :]


def _tasks(components: Components, split: Any, wanted: int) -> Sequence[Task]:
    tasks = components.environment.tasks(split) if wanted else []
    if wanted and not tasks:
        raise DataError(f"environment {components.recipe.environment.name} has no {split} tasks")
    return tasks
