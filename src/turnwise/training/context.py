"""The facts and parts that all stages of a run share, and the interface of a stage."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import Recipe, RecordedDemonstrations, ScriptedDemonstrations
from turnwise.errors import DataError
from turnwise.learning.learner import Resumable
from turnwise.monitor.display import Display
from turnwise.parts.components import Components
from turnwise.parts.resources import Resources
from turnwise.rollout.demonstrations import demonstrate
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint
from turnwise.storage.run_folder import RunFolder
from turnwise.threads import release_memory
from turnwise.tokens import Tokens
from turnwise.training.phases import Phases
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
    resources: Resources
    """The processes and machines that do a part of it."""
    begun: float
    """`time.monotonic()` at the beginning, less the seconds of earlier processes."""
    phases: Phases = field(default_factory=Phases)
    """The work for the present step of RL, and its times."""

    @property
    def seconds(self) -> float:
        """Time that the run has taken so far, in all of its processes."""
        return time.monotonic() - self.begun

    def saved_in(self, stage: str) -> Checkpoint | None:
        """The checkpoint to go on from, where it was made in this stage."""
        return self.saved if self.saved is not None and self.saved.stage == stage else None

    def save(
        self,
        learner: Resumable,
        stage: str,
        step: int,
        kept: Mapping[str, Any],
        best: int | None = None,
    ) -> None:
        """Let a learner write a checkpoint of its weights, and of a state that is to be kept beside
        them; older ones of the stage are deleted, but for the newest few and that of `best`."""
        root = checkpoint.root_of(self.folder.checkpoints, stage)
        state = {"stage": str(stage), "seconds": self.seconds}

        # Not at once: other processes may still be writing when `save` returns.
        def prune() -> None:
            checkpoint.prune(root, self.recipe.train.keep_checkpoints, best)
            release_memory()

        learner.save(root, step, self.components.tokenizer, state, kept, prune)


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
        self.read()
        chosen = self.recipe.sft.demonstrations
        if not self._tokens and isinstance(chosen, ScriptedDemonstrations):
            self._tokens.extend(await self._play(chosen))
        return self._tokens

    def read(self) -> None:
        """Read those of a file, where there is one. Raises DataError for what cannot be used."""
        chosen = self.recipe.sft.demonstrations
        if not self._tokens and isinstance(chosen, RecordedDemonstrations):
            self._tokens.extend(self._read(chosen))

    def _read(self, chosen: RecordedDemonstrations) -> list[Tokens]:
        """The conversations of the file that an episode has room for."""
        from turnwise.parts.conversations import conversation_tokens, read_conversations

        file, scaffold = Path(chosen.file), self.components.scaffold
        found = [
            conversation_tokens(messages, scaffold, place)
            for place, messages in read_conversations(file)
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
            turns=chosen.turns,
        )
        self.folder.write_trajectories("demonstrations", [Group("demonstrations", tuple(played))])
        return [member.tokens for member in played]


class Stage(Protocol):
    """One part of a run; whatever it is to go on from stands in its checkpoint."""

    async def run(self, context: RunContext, step: int) -> int:
        """Do the stage, from its checkpoint on if the run was interrupted in it.

        `step` is the policy's version: the number of RL and preference steps before the stage.
        Returns the version after it. Cancelled, it saves and ends.
        """
        ...
