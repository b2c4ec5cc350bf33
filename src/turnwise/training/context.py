"""The facts and parts that all stages of a run share, and how a run is prepared.

Not here: the stages themselves, and what changes while they run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.config import Recipe
from turnwise.environments.splits import check_splits
from turnwise.errors import DataError
from turnwise.evaluation.evaluate import choose_tasks
from turnwise.monitor.display import Display
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint, StageName
from turnwise.storage.run_folder import RunFolder
from turnwise.synthesis.demonstrations import demonstrate
from turnwise.threads import release_memory
from turnwise.training.checks import check_parts, check_recipe_and_algorithm
from turnwise.training.components import Components, build_components
from turnwise.types import Group, Task, Tokens


@dataclass(frozen=True)
class RunContext:
    """What a stage gets. Example: `context = prepare(recipe, folder, display)`."""

    recipe: Recipe
    algorithm: Algorithm
    components: Components
    folder: RunFolder
    display: Display
    tasks: Sequence[Task]
    """Those of training; empty where nothing is trained."""
    heldout: Sequence[Task]
    """Those of evaluation."""
    demonstrations: "Demonstrations"
    saved: Checkpoint | None
    """Where the run was interrupted; None for a run that begins."""
    begun: float
    """`time.monotonic()` at the beginning, less the seconds of earlier processes."""

    @property
    def seconds(self) -> float:
        """Time that the run has taken so far, in all of its processes."""
        return time.monotonic() - self.begun

    def saved_in(self, stage: StageName) -> Checkpoint | None:
        """The checkpoint to go on from, where it was made in this stage."""
        return self.saved if self.saved is not None and self.saved.stage is stage else None

    def save(
        self, stage: StageName, step: int, learner: Mapping[str, Any], best: int | None = None
    ) -> None:
        """Write a checkpoint of the present weights and of a learner's state; older ones of the
        stage are deleted, but for the newest few and that of step `best`."""
        root = checkpoint.root_of(self.folder.checkpoints, stage)
        state = {"stage": str(stage), "seconds": self.seconds}
        model, tokenizer = self.components.model, self.components.tokenizer
        checkpoint.save(root, step, model, tokenizer, state, learner)
        checkpoint.prune(root, self.recipe.train.keep_checkpoints, best)
        release_memory()


@dataclass(frozen=True)
class Demonstrations:
    """The scripted demonstrations of a run, played when they are first asked for."""

    recipe: Recipe
    components: Components
    folder: RunFolder
    display: Display
    tasks: Sequence[Task]

    _played: list[Tokens] = field(default_factory=list)

    async def tokens(self) -> list[Tokens]:
        """The same ones whenever they are played; written as the trajectories `demonstrations`."""
        if not self._played:
            self._played.extend(await self._play())
        return self._played

    async def _play(self) -> list[Tokens]:
        recipe = self.recipe
        self.display.phase("demonstrations", recipe.sft.demonstrations)
        played = await demonstrate(
            self.components.environment,
            self.components.scaffold,
            recipe.rollout,
            self.tasks,
            recipe.sft.behaviours,
            recipe.sft.demonstrations,
            recipe.seed,
            lambda _: self.display.advance(),
        )
        self.folder.write_trajectories("demonstrations", [Group("demonstrations", played)])
        return [member.tokens for member in played]


def prepare(recipe: Recipe, folder: RunFolder, display: Display) -> RunContext:
    """Build the parts of a run, which goes on from the folder's newest checkpoint if it has one.

    Raises ConfigError or DataError for what cannot work, before anything is written.
    """
    begun = time.monotonic()
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    check_recipe_and_algorithm(recipe, algorithm)
    saved = None if folder.fresh else _newest_checkpoint(folder, display)
    weights = saved.folder if saved is not None else None
    components = build_components(recipe, weights, folder.path / "vllm")
    learned = recipe.train.steps + recipe.sft.steps + recipe.preferences.steps
    tasks = _tasks(components, "train", learned)
    check_parts(components, algorithm, tasks)
    wanted = recipe.evaluation.tasks
    heldout = choose_tasks(_tasks(components, "heldout", wanted), wanted, recipe.evaluation.seed)
    check_splits(components.environment, tasks, heldout)
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
        demonstrations,
        saved,
        begun,
    )


def set_aside(damaged: Mapping[Path, str], display: Display) -> None:
    """Rename damaged checkpoints, and name each."""
    for folder, problem in damaged.items():
        kept = checkpoint.set_aside(folder)
        display.say(f"warning: {problem}; it is kept as {kept.name}")


def _newest_checkpoint(folder: RunFolder, display: Display) -> Checkpoint | None:
    """Find where to go on; damaged checkpoints after it are set aside."""
    found, damaged = checkpoint.newest(folder.checkpoints)
    set_aside(damaged, display)
    if found is not None and damaged:
        display.say(f"warning: the run goes on from {found.folder}, the one before")
    return found


def _tasks(components: Components, split: Any, wanted: int) -> Sequence[Task]:
    tasks = components.environment.tasks(split) if wanted else []
    if wanted and not tasks:
        raise DataError(f"environment {components.recipe.environment.name} has no {split} tasks")
    return tasks
