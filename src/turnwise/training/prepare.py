"""How a run is prepared: its parts are built and checked, and its newest checkpoint is found."""

import time
from collections.abc import Mapping
from pathlib import Path

from turnwise.config import Recipe
from turnwise.monitor.display import Display
from turnwise.parts.checks import check_parts
from turnwise.parts.components import build_components
from turnwise.parts.first_checks import KnownRun, demonstrates, known_run
from turnwise.parts.resources import Resources
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import Demonstrations, RunContext
from turnwise.training.reactions import check_reaction


def prepare(
    recipe: Recipe,
    folder: RunFolder,
    display: Display,
    resources: Resources | None = None,
    known: KnownRun | None = None,
) -> RunContext:
    """Build the parts of a run, which goes on from the folder's newest checkpoint if it has one.
    Without `resources`, this process does all. What is `known` already is not made again.

    Raises ConfigError or DataError for what cannot work, before anything is written.
    """
    begun, resources = time.monotonic(), resources or Resources()
    folder.check_run()
    known = known or known_run(recipe, folder.fresh)
    algorithm = known.algorithm
    check_reaction(recipe, algorithm)
    for section in recipe.added().values() if folder.fresh else ():
        section.check_new_run(folder.path)
    saved = (
        None if folder.fresh else _newest_checkpoint(folder, recipe.train.keep_checkpoints, display)
    )
    weights = saved.folder if saved is not None else None
    components = build_components(recipe, weights, folder.path, resources, known)
    recipe = components.recipe  # with the type that the update is computed in, and the date
    resources.check(recipe, components.model)
    check_parts(components, algorithm, known.tasks)
    demonstrations = Demonstrations(recipe, components, folder, display, known.tasks)
    if folder.fresh and demonstrates(recipe, algorithm):
        demonstrations.read()
    folder.begin(recipe)
    folder.write_tokenizer(components.tokenizer)
    if saved is not None:
        # As if the run had gone on without a break.
        begun -= saved.state["seconds"]
    return RunContext(
        recipe,
        algorithm,
        components,
        folder,
        display,
        known.tasks,
        known.heldout,
        known.validation,
        demonstrations,
        saved,
        resources,
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
    for stage in (*checkpoint.stages_of_a_run(), checkpoint.IMITATION):
        checkpoint.delete_drafts(root := checkpoint.root_of(folder.checkpoints, stage))
        if stage != checkpoint.REINFORCEMENT:  # which keeps its best one too
            checkpoint.prune(root, keep)
    if found is not None:
        checkpoint.check_learner(found.folder)
    if found is not None and damaged:
        display.say(f"warning: the run goes on from {found.folder}, the one before")
    return found
