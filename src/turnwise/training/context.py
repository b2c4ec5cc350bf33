"""The facts and parts that all stages of a run share, and how a run is prepared.

Not here: the stages themselves, and what changes while they run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.config import Recipe, RecordedDemonstrations, ScriptedDemonstrations
from turnwise.environments.splits import check_splits
from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.evaluate import choose_tasks
from turnwise.monitor.display import Display
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint, StageName
from turnwise.storage.run_folder import RunFolder
from turnwise.synthesis.conversations import conversation_tokens, read_conversations
from turnwise.synthesis.demonstrations import demonstrate
from turnwise.threads import release_memory
from turnwise.tokens import Tokens
from turnwise.training.checks import check_parts, check_recipe_and_algorithm
from turnwise.training.components import Components, build_components
from turnwise.types import Group, Task


@dataclass(frozen=True)
class RunContext:
    """The input of a stage. Example: `context = prepare(recipe, folder, display)`."""

    recipe: Recipe
    algorithm: Algorithm
    components: Components
    folder: RunFolder
    display: Display
    tasks: Sequence[Task]
    """The tasks of training; empty where nothing is trained."""
    heldout: Sequence[Task]
    """The tasks of evaluation."""
    validation: Sequence[Task]
    """More held-out tasks, for evaluations during RL; empty where there are none."""
    demonstrations: "Demonstrations"
    saved: Checkpoint | None
    """The checkpoint at which the run was interrupted; None for a run that begins."""
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
        stage are deleted, but for the newest few and the one of step `best`."""
        root = checkpoint.root_of(self.folder.checkpoints, stage)
        state = {"stage": str(stage), "seconds": self.seconds}
        model, tokenizer = self.components.model, self.components.tokenizer
        checkpoint.save(root, step, model, tokenizer, state, learner)
        checkpoint.prune(root, self.recipe.train.keep_checkpoints, best)
        release_memory()


@dataclass(frozen=True)
class Demonstrations:
    """The demonstrations that a run imitates: conversations of a file, or scripted ones, which are
    played when they are first asked for."""

    recipe: Recipe
    components: Components
    folder: RunFolder
    display: Display
    tasks: Sequence[Task]

    _tokens: list[Tokens] = field(default_factory=list)

    async def tokens(self) -> list[Tokens]:
        """Return the same demonstrations at every call; played ones are written as the trajectories
        `demonstrations`. Raises DataError for a file that cannot be used."""
        if not self._tokens:
            chosen = self.recipe.sft.demonstrations
            if isinstance(chosen, RecordedDemonstrations):
                self._tokens.extend(self._read(chosen))
            else:
                self._tokens.extend(await self._play(chosen))
        return self._tokens

    def _read(self, chosen: RecordedDemonstrations) -> list[Tokens]:
        """The conversations of the file that an episode has room for."""
        file, scaffold = Path(chosen.file), self.components.scaffold
        found = [
            conversation_tokens(messages, scaffold, f"{file}, conversation {number}")
            for number, messages in enumerate(read_conversations(file), 1)
        ]
        most = self.recipe.rollout.max_tokens
        kept = [tokens for tokens in found if len(tokens) <= most]
        if len(kept) < len(found):
            self.display.say(
                f"warning: {len(found) - len(kept)} of {len(found)} conversations in {file} are "
                f"longer than rollout.max_tokens = {most} and are left out"
            )
        if not kept:
            raise DataError(f"{file} holds no conversation of at most {most} tokens")
        return kept

    async def _play(self, chosen: ScriptedDemonstrations) -> list[Tokens]:
        recipe = self.recipe
        self.display.phase("demonstrations", chosen.count)
        played = await demonstrate(
            self.components.environment,
            self.components.scaffold,
            recipe.rollout,
            self.tasks,
            chosen.behaviours,
            chosen.count,
            recipe.seed,
            lambda _: self.display.advance(),
        )
        self.folder.write_trajectories("demonstrations", [Group("demonstrations", tuple(played))])
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
