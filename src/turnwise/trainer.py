"""The only loop: tasks ─> rollout ─> reward ─> advantage ─> batch ─> update ─> new weights.

A run is a cold start, an evaluation, the RL steps, the evaluation again with its floors, and a
report. It can be stopped anywhere: what a step does depends on the recipe, the seed and the step
number, so a run that goes on from a checkpoint ends with the weights of one that never stopped.
Not here: how an episode is played (rollout), what the update computes (learning).
"""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.assembly import Assembly, assemble
from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, DataError, NotSupportedError, RunStoppedError
from turnwise.evaluation.evaluate import choose_tasks, evaluate_policy
from turnwise.evaluation.report import build_report, report_json, report_markdown
from turnwise.learning import checkpoint
from turnwise.learning.batch import assign_advantages, kept_groups
from turnwise.learning.checkpoint import COLD_START, RL, SFT
from turnwise.learning.critic import Critic
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.sft import SupervisedLearner
from turnwise.models.load import load_model
from turnwise.monitor.display import Display
from turnwise.monitor.echo_trap import EchoTrap, Thresholds, look
from turnwise.monitor.metrics import rollout_metrics
from turnwise.monitor.run_folder import RunFolder
from turnwise.rollout.groups import Roller
from turnwise.rollout.order import tasks_of_step
from turnwise.seeds import derive
from turnwise.synthesis.demonstrations import check_behaviours, demonstrate
from turnwise.types import Group, Task

MAX_SKIPPED_STEPS = 3
"""Steps in a row that may have an update skipped for a loss or gradient that is not finite."""


class Trainer:
    """One run. Example: `asyncio.run(Trainer(recipe, folder, display).run())`."""

    def __init__(self, recipe: Recipe, folder: RunFolder, display: Display) -> None:
        """Builds the parts; goes on from the folder's newest checkpoint when there is one.

        Raises ConfigError or DataError for what cannot work, before anything is written.
        """
        self._start = time.monotonic()
        self.recipe, self.folder, self.display = recipe, folder, display
        self.algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
        check_contradictions(recipe)
        newest = None if folder.fresh else checkpoint.newest(folder.checkpoints)
        self.resumed = checkpoint.load(newest) if newest else None
        self.parts: Assembly = assemble(recipe, newest)
        check_needs(self.algorithm, self.parts.environment, recipe)
        self.tasks = self._tasks("train", recipe.train.steps + recipe.sft.steps)
        self.heldout = choose_tasks(
            self._tasks("heldout", recipe.evaluation.tasks),
            recipe.evaluation.tasks,
            recipe.evaluation.seed,
        )
        if recipe.sft.steps:
            check_behaviours(recipe.sft.behaviours)
            check_oracle(self.parts.environment, self.tasks[0])
        folder.begin(recipe)
        self.parts.tokenizer.save_pretrained(str(folder.tokenizer))
        self.steps_done = 0
        self._unsaved = False
        self._skipped = 0
        self._history: list[Mapping[str, float]] = []
        self._trap: EchoTrap | None = None
        if self.resumed:
            self._start -= self.resumed.state["seconds"]

    async def run(self) -> dict[str, Any]:
        """Everything a recipe asks for; returns the report. Cancelled, it saves and ends."""
        for warning in self.parts.environment.warnings:
            self.display.say(f"warning: {warning}")
        if len(self.heldout) < self.recipe.evaluation.tasks:
            self.display.say(f"warning: there are only {len(self.heldout)} held-out tasks")
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
        return self.report()

    async def cold_start(self) -> None:
        """Supervised learning on scripted demonstrations; its result is step 0 of RL."""
        recipe = self.recipe
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
        self.folder.rewind("cold_start.jsonl", learner.steps_done)
        self.display.phase("cold start", recipe.sft.steps)
        for _ in range(learner.steps_done):
            self.display.advance()
        try:
            while not learner.finished:
                metrics = learner.step()
                self.folder.append("cold_start.jsonl", {"step": learner.steps_done, **metrics})
                self._count_skipped("a loss or gradient" if metrics["sft/skipped_updates"] else "")
                self.display.advance(f"loss {metrics['sft/loss']:.3f}")
                if learner.steps_done % recipe.sft.checkpoint_every == 0:
                    self._save(SFT, learner.steps_done, learner.state())
                await asyncio.sleep(0)  # lets a cancellation through
        except asyncio.CancelledError:
            self._save(SFT, learner.steps_done, learner.state())
            raise
        self._save(COLD_START, 0, {})
        shutil.rmtree(self.folder.checkpoints / SFT, ignore_errors=True)

    async def reinforce(self) -> None:
        """The RL steps."""
        recipe, train = self.recipe, self.recipe.train
        learner, critic = self._learner(), self._critic()
        roller = self.parts.roller(recipe.rollout)
        for name in ("metrics.jsonl", "timing.jsonl"):
            self.folder.rewind(name, self.steps_done)
        self._history = list(self.folder.lines("metrics.jsonl"))
        self.folder.forget_trajectories(self.steps_done)
        await self.parts.engine.load({}, self.steps_done)
        self.display.phase("reinforcement learning", train.steps)
        for _ in range(self.steps_done):
            self.display.advance()
        try:
            while self.steps_done < train.steps:
                start, step = time.monotonic(), self.steps_done
                groups = await self._rollout(roller, step)
                sampled = time.monotonic()
                update = self._learn(groups, learner, critic)
                self.steps_done, self._unsaved = step + 1, True
                await self.parts.engine.load({}, self.steps_done)
                self._record(groups, update, sampled - start, time.monotonic() - sampled)
                if self.steps_done % train.checkpoint_every == 0 or self.steps_done == train.steps:
                    self._save(RL, self.steps_done, self._state(learner, critic))
        except (asyncio.CancelledError, RunStoppedError):
            if self._unsaved:
                self._save(RL, self.steps_done, self._state(learner, critic))
            raise

    async def evaluate(self, name: str, environment: Environment) -> None:
        """One episode on each held-out task; a finished evaluation is not repeated."""
        done = self.folder.evaluation(name)
        if not self.heldout or (done is not None and done["step"] == self.steps_done):
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
        self.folder.write_evaluation(name, {"step": self.steps_done, **summary})

    def report(self) -> dict[str, Any]:
        """Write report.json and report.md."""
        names = ("cold_start", "trained", *self.parts.environment.floors())
        found = {name: self.folder.evaluation(name) for name in names}
        evaluations = {name: summary for name, summary in found.items() if summary is not None}
        seconds = time.monotonic() - self._start
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
        """The learner where the newest checkpoint left it.

        The reference of a KL term is the model after the cold start; with LoRA, without adapters.
        """
        reference = None
        if self.algorithm.kl_coefficient and not self.recipe.model.lora_rank:
            cold = checkpoint.latest(self.folder.checkpoints / COLD_START)
            reference, _ = load_model(self.recipe.model, cold)
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

    async def _rollout(self, roller: Roller, step: int) -> list[Group]:
        """The groups of a step, and as many again while the filter leaves too few of them."""
        train, seed = self.recipe.train, self.recipe.seed
        groups: list[Group] = []
        for again in range(1 + train.refills):
            order = derive(seed, "refill", again) if again else seed
            tasks = tasks_of_step(self.tasks, step, train.tasks_per_step, order)
            label = f"train/{step}/refill/{again}" if again else f"train/{step}"
            groups += await roller.collect(tasks, train.group_size, seed, label)
            if len(kept_groups(groups, self.algorithm)) >= train.tasks_per_step:
                break
        return groups

    def _critic(self) -> Critic | None:
        """The critic where the newest checkpoint left it; None where the algorithm has none."""
        if "critic" not in self.algorithm.needs:
            return None
        critic = Critic(self.parts.model, self.recipe.critic, self.recipe.learning)
        if self.resumed and self.resumed.state["phase"] == RL:
            critic.load_state(self.resumed.learner["critic"])
        return critic

    def _learn(
        self, groups: list[Group], learner: PolicyLearner, critic: Critic | None
    ) -> UpdateReport:
        """Advantages, then the updates; in the first steps a critic may be updated alone."""
        if critic is None:
            assign_advantages(groups, self.algorithm)
            return learner.update(groups)
        critic.assess(groups)
        assign_advantages(groups, self.algorithm)
        alone = self.steps_done < self.recipe.critic.pretraining_steps
        update = UpdateReport({}, []) if alone else learner.update(groups)
        return UpdateReport({**update.metrics, **critic.update(groups)}, update.problems)

    def _state(self, learner: PolicyLearner, critic: Critic | None) -> dict[str, Any]:
        return learner.state() | ({"critic": critic.state()} if critic is not None else {})

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
        self.folder.append("metrics.jsonl", metrics)
        self._history.append(metrics)
        self.folder.append("timing.jsonl", timing)
        self.display.advance(
            f"reward {metrics['reward/mean']:.2f}  turns {metrics['rollout/turns']:.1f}"
        )
        self._count_skipped("; ".join(update.problems))
        self._watch()

    def _watch(self) -> None:
        """Tell of an Echo Trap when it begins; stop the run if the recipe says so."""
        config = self.recipe.monitor
        if config.echo_trap == "off":
            return
        known, self._trap = self._trap, look(self._history, config.highest_reward, Thresholds())
        if self._trap and not known:
            self.display.say(str(self._trap))
            if config.echo_trap == "stop":
                raise RunStoppedError(str(self._trap))

    def _count_skipped(self, problem: str) -> None:
        """Tell of a skipped update; stop the run after MAX_SKIPPED_STEPS in a row."""
        self._skipped = self._skipped + 1 if problem else 0
        if problem:
            self.display.say(f"update skipped, not finite: {problem}")
        if self._skipped >= MAX_SKIPPED_STEPS:
            raise RunStoppedError(
                f"updates were skipped in {self._skipped} steps in a row, last: {problem}; "
                "lower learning_rate"
            )

    def _save(self, phase: str, step: int, learner: dict[str, Any]) -> None:
        root = self.folder.checkpoints if phase == RL else self.folder.checkpoints / phase
        state = {"phase": phase, "seconds": time.monotonic() - self._start}
        checkpoint.save(root, step, self.parts.model, self.parts.tokenizer, state, learner)
        checkpoint.prune(root, self.recipe.train.keep_checkpoints)
        self._unsaved = False


def check_contradictions(recipe: Recipe) -> None:
    """Raise ConfigError for a recipe that would train on nothing without saying so."""
    train = recipe.train
    if train.steps and train.group_size < 2:
        raise ConfigError(
            "train.group_size is 1: trajectories are compared within their group, give at least 2"
        )
    if train.steps and recipe.rollout.temperature == 0:
        raise ConfigError("rollout.temperature is 0: all trajectories of a group would be the same")
    if recipe.learning.updates_per_step > train.tasks_per_step:
        raise ConfigError("learning.updates_per_step is more than train.tasks_per_step: lower it")


def check_needs(algorithm: Algorithm, environment: Environment, recipe: Recipe) -> None:
    """Raise ConfigError for an estimator that the environment has not the rewards for, and for
    settings of a critic or a filter that there is not."""
    if recipe.train.refills and algorithm.group_filter == "none":
        raise ConfigError(
            f"train.refills samples in place of groups that are dropped, but algorithm "
            f"{algorithm.name} drops none: give it a group_filter"
        )
    if recipe.critic.pretraining_steps and "critic" not in algorithm.needs:
        raise ConfigError(
            f"critic.pretraining_steps is set, but algorithm {algorithm.name} has no critic"
        )
    if "turn_rewards" in algorithm.needs and not environment.spec.turn_rewards:
        raise ConfigError(
            f"algorithm {algorithm.name}: estimator {algorithm.estimator} needs a reward per turn, "
            f"and environment {environment.spec.name} gives none; see `turnwise algorithms`"
        )


def check_oracle(environment: Environment, task: Task) -> None:
    """Raise ConfigError when demonstrations are asked of an environment that has no oracle."""
    try:
        environment.oracle(task)
    except NotSupportedError as error:
        raise ConfigError(
            f"the cold start needs the environment's oracle: {error}. Set sft.steps=0, or give the "
            "environment one"
        ) from error
