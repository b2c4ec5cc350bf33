"""The only loop: tasks ─> rollout ─> reward ─> advantage ─> batch ─> update ─> new weights.

A run is a cold start, an evaluation, the RL steps, the evaluation again with its floors, and a
report. It can be stopped anywhere: what a step does depends on the recipe, the seed and the step
number, so a run that goes on from a checkpoint ends with the weights of one that never stopped.
Not here: how an episode is played (rollout), what the update computes (learning).
"""

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.algorithms.registry import make_algorithm
from turnwise.assembly import Assembly, assemble
from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.errors import DataError, RunStoppedError
from turnwise.evaluation.evaluate import choose_tasks, evaluate_policy
from turnwise.evaluation.report import build_report, report_json, report_markdown
from turnwise.learning import checkpoint
from turnwise.learning.batch import assign_advantages
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.sft import SupervisedLearner
from turnwise.models.load import load_model
from turnwise.monitor.display import Display
from turnwise.monitor.metrics import rollout_metrics
from turnwise.monitor.run_folder import RunFolder
from turnwise.rollout.order import tasks_of_step
from turnwise.synthesis.demonstrations import check_behaviours, demonstrate
from turnwise.types import Group, Task

SFT, COLD_START, RL = "sft", "cold_start", "rl"
"""Phases of a run, as a checkpoint's state names them."""

MAX_SKIPPED_UPDATES = 3
"""Updates in a row that may be skipped for a loss or gradient that is not finite."""


class Trainer:
    """One run. Example: `asyncio.run(Trainer(recipe, folder, display).run())`."""

    def __init__(self, recipe: Recipe, folder: RunFolder, display: Display) -> None:
        """Builds the parts; goes on from the folder's newest checkpoint when there is one."""
        self.recipe, self.folder, self.display = recipe, folder, display
        self.algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
        if recipe.sft.steps:
            check_behaviours(recipe.sft.behaviours)
        self.resumed = None if folder.fresh else _newest(folder)
        weights = str(self.resumed.folder) if self.resumed else None
        self.parts: Assembly = assemble(recipe, weights)
        self.tasks = self._tasks("train", recipe.train.steps + recipe.sft.steps)
        self.heldout = choose_tasks(
            self._tasks("heldout", recipe.evaluation.tasks),
            recipe.evaluation.tasks,
            recipe.evaluation.seed,
        )
        folder.begin(recipe)
        self.parts.tokenizer.save_pretrained(str(folder.tokenizer))
        self.steps_done = 0
        self._unsaved = False
        self._skipped = 0

    async def run(self) -> dict[str, Any]:
        """Everything a recipe asks for; returns the report. Cancelled, it saves and ends."""
        start = time.monotonic()
        for warning in self.parts.environment.warnings:
            self.display.say(f"warning: {warning}")
        try:
            await self.cold_start()
            await self.evaluate("cold_start", self.parts.environment)
            await self.reinforce()
            await self.evaluate("trained", self.parts.environment)
            for name, variant in self.parts.environment.floors().items():
                await self.evaluate(name, variant)
        finally:
            await self.parts.engine.stop()
            self.display.close()
        return self.report(time.monotonic() - start)

    async def cold_start(self) -> None:
        """Supervised learning on scripted demonstrations; its result is step 0 of RL."""
        recipe, unfinished = self.recipe, self.folder.checkpoints / SFT
        if not recipe.sft.steps or (self.resumed and self.resumed.state["phase"] != SFT):
            return
        self.display.phase("demonstrations", recipe.sft.demonstrations)
        demonstrations = await demonstrate(
            self.parts.environment,
            self.parts.scaffold,
            recipe.rollout,
            self.tasks,
            recipe.sft.behaviours,
            recipe.sft.demonstrations,
            recipe.seed,
            lambda _: self.display.advance(),
        )
        self.folder.write_trajectories("demonstrations", [Group("demonstrations", demonstrations)])
        learner = SupervisedLearner(
            self.parts.model,
            [demonstration.tokens for demonstration in demonstrations],
            recipe.sft,
            recipe.learning,
            recipe.seed,
        )
        if self.resumed:
            learner.load_state(self.resumed.learner)
        self.display.phase("cold start", recipe.sft.steps)
        for _ in range(learner.steps_done):
            self.display.advance()
        while not learner.finished:
            metrics = learner.step()
            self.display.advance(f"loss {metrics['sft/loss']:.3f}")
            if learner.steps_done % recipe.sft.checkpoint_every == 0:
                self._save(unfinished, learner.steps_done, learner.state(), SFT)
            await asyncio.sleep(0)  # lets a cancellation through
        self._save(self.folder.checkpoints / COLD_START, 0, {}, COLD_START)
        shutil.rmtree(unfinished, ignore_errors=True)

    async def reinforce(self) -> None:
        """The RL steps."""
        recipe, train = self.recipe, self.recipe.train
        learner = self._learner()
        roller = self.parts.roller(recipe.rollout)
        self.folder.rewind(self.steps_done)
        await self.parts.engine.load({}, self.steps_done)
        self.display.phase("reinforcement learning", train.steps)
        for _ in range(self.steps_done):
            self.display.advance()
        try:
            while self.steps_done < train.steps:
                start, step = time.monotonic(), self.steps_done
                tasks = tasks_of_step(self.tasks, step, train.tasks_per_step, recipe.seed)
                groups = await roller.collect(tasks, train.group_size, recipe.seed, f"train/{step}")
                sampled = time.monotonic()
                assign_advantages(groups, self.algorithm)
                update = learner.update(groups)
                self.steps_done, self._unsaved = step + 1, True
                await self.parts.engine.load({}, self.steps_done)
                self._record(groups, update, sampled - start, time.monotonic() - sampled)
                if self.steps_done % train.checkpoint_every == 0 or self.steps_done == train.steps:
                    self._save(self.folder.checkpoints, self.steps_done, learner.state(), RL)
        except asyncio.CancelledError:
            if self._unsaved:
                self._save(self.folder.checkpoints, self.steps_done, learner.state(), RL)
            raise

    async def evaluate(self, name: str, environment: Environment) -> None:
        """One episode on each held-out task; a finished evaluation is not repeated."""
        if not self.heldout or self.folder.evaluation(name) is not None:
            return
        config = self.recipe.evaluation
        limits = self.recipe.rollout.model_copy(update={"temperature": config.temperature})
        self.display.phase(f"evaluation: {name}", len(self.heldout))
        await self.parts.engine.load({}, self.steps_done)
        roller = self.parts.roller(limits, environment)
        groups, summary = await evaluate_policy(
            roller, self.heldout, config.seed, f"evaluation/{name}", self.display
        )
        self.folder.write_trajectories(f"evaluation-{name}", groups)
        self.folder.write_evaluation(name, summary)

    def report(self, seconds: float) -> dict[str, Any]:
        """Write report.json and report.md."""
        names = ("cold_start", "trained", *self.parts.environment.floors())
        found = {name: self.folder.evaluation(name) for name in names}
        evaluations = {name: summary for name, summary in found.items() if summary is not None}
        report = build_report(
            self.recipe, self.parts.environment, self.heldout, evaluations, seconds
        )
        self.folder.write_text("report.json", report_json(report))
        self.folder.write_text("report.md", report_markdown(report))
        return report

    def _tasks(self, split: Any, wanted: int) -> Sequence[Task]:
        tasks = self.parts.environment.tasks(split) if wanted else []
        if wanted and not tasks:
            raise DataError(f"environment {self.recipe.environment.name} has no {split} tasks")
        return tasks

    def _learner(self) -> PolicyLearner:
        """The learner where the newest checkpoint left it; KL is against the cold start."""
        reference = None
        if self.algorithm.kl_coefficient and not self.recipe.model.lora_rank:
            cold = checkpoint.latest(self.folder.checkpoints / COLD_START)
            source = {"name": str(cold)} if cold else {}
            reference, _ = load_model(self.recipe.model.model_copy(update=source))
        learner = PolicyLearner(
            self.parts.model,
            reference,
            self.recipe.learning,
            self.algorithm,
            self.recipe.rollout.temperature,
        )
        if self.resumed and self.resumed.state["phase"] == RL:
            self.steps_done = self.resumed.step
            learner.load_state(self.resumed.learner)
        return learner

    def _record(
        self, groups: list[Group], update: UpdateReport, rollout: float, learning: float
    ) -> None:
        metrics = {"step": self.steps_done, **rollout_metrics(groups), **update.metrics}
        tokens = metrics["rollout/tokens"]
        timing = {
            "step": self.steps_done,
            "seconds/rollout": rollout,
            "seconds/update": learning,
            "rollout/sampled_tokens_per_second": metrics["rollout/tokens_sampled"] / rollout,
            "update/tokens_per_second": tokens / learning,
        }
        self.folder.write_trajectories(f"step-{self.steps_done:06d}", groups)
        self.folder.append_metrics(metrics, timing)
        self.display.advance(
            f"reward {metrics['reward/mean']:.2f}  turns {metrics['rollout/turns']:.1f}"
        )
        self._skipped = self._skipped + 1 if update.problems else 0
        for problem in update.problems:
            self.display.say(f"step {self.steps_done}: update skipped: {problem}")
        if self._skipped >= MAX_SKIPPED_UPDATES:
            raise RunStoppedError(f"{self._skipped} steps in a row skipped: {update.problems[0]}")

    def _save(self, root: Path, step: int, learner: dict[str, Any], phase: str) -> None:
        checkpoint.save(
            root, step, self.parts.model, self.parts.tokenizer, {"phase": phase}, learner
        )
        checkpoint.prune(root, self.recipe.train.keep_checkpoints)
        self._unsaved = False


def _newest(folder: RunFolder) -> checkpoint.Checkpoint | None:
    """Where to go on: after an RL step, after the cold start, or within it."""
    for root in (folder.checkpoints, folder.checkpoints / COLD_START, folder.checkpoints / SFT):
        found = checkpoint.latest(root)
        if found is not None:
            return checkpoint.load(found)
    return None
