"""The only loop: tasks ─> rollout ─> reward ─> advantage ─> batch ─> update ─> new weights.

A run is a cold start, an evaluation, the RL steps, learning from preferences where the recipe asks
for it, the evaluation again with its floors, and a report; where the recipe asks for it, also an
evaluation before everything, and one of imitation alone, with as many updates. It can be stopped
anywhere: what a step does depends on the recipe, the seed, the step number and what a checkpoint
holds, so a run that goes on from one ends with the weights of one that never stopped. Where steps
are sampled ahead (`max_staleness`) the clock has a say as well; then no task is lost and none is
counted twice. Not here: how an episode is played (rollout), what the update computes (learning).
"""

import asyncio
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnwise.algorithm_checks import warnings_of
from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.assembly import Assembly, assemble
from turnwise.checks import check_parts, check_recipe_and_algorithm
from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.environments.splits import check_splits
from turnwise.errors import DataError, RunStoppedError
from turnwise.evaluation.evaluate import choose_tasks, evaluate_policy
from turnwise.evaluation.report import build_report, report_json, report_markdown
from turnwise.learning import checkpoint
from turnwise.learning.auxiliary import demonstrations_of_step
from turnwise.learning.batch import Example, assign_advantages
from turnwise.learning.checkpoint import COLD_START, IMITATION, PREFERENCES, RL, SFT
from turnwise.learning.critic import Critic
from turnwise.learning.hindsight import score_in_hindsight
from turnwise.learning.implicit_reward import ImplicitReward
from turnwise.learning.information_gain import measure_information_gain
from turnwise.learning.parity import check_gap
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.preferences import (
    PreferenceLearner,
    best_and_worst,
    saved_pairs,
)
from turnwise.learning.scoring import assess_score_norms
from turnwise.learning.selection import assign_penalties, kept_groups, selection_metrics
from turnwise.learning.self_teacher import SelfTeacher
from turnwise.learning.sft import SupervisedLearner
from turnwise.learning.teacher import Teacher, load_teacher
from turnwise.learning.value_head import ValueHead, make_critic
from turnwise.models.load import load_model
from turnwise.monitor.display import Display
from turnwise.monitor.echo_trap import Thresholds, look
from turnwise.monitor.metrics import finite, rollout_metrics, step_text
from turnwise.monitor.mutual_information import mutual_information
from turnwise.monitor.no_signal import offline_reason, reason, summary
from turnwise.monitor.reactions import REACTIONS, Situation, best_step
from turnwise.monitor.run_folder import RunFolder
from turnwise.monitor.trackers import Trackers, tracked_run
from turnwise.registry import whole_target
from turnwise.rollout.collect import Rollout, with_spares
from turnwise.rollout.curriculum import Curriculum
from turnwise.rollout.groups import Roller
from turnwise.rollout.order import tasks_of_step
from turnwise.rollout.pipeline import Pipeline, Played, beside_sampling
from turnwise.rollout.staleness import check_staleness, staleness_metrics
from turnwise.seeds import derive
from turnwise.synthesis.demonstrations import demonstrate
from turnwise.threads import release_memory, settled
from turnwise.types import Group, Task, Tokens

MAX_SKIPPED_STEPS = 3
"""Steps in a row that may have an update skipped for a loss or gradient that is not finite."""

Result = TypeVar("Result")

Assessor = Critic | ImplicitReward | SelfTeacher
"""A second model that judges trajectories before there are advantages, and learns beside the
policy."""


class Trainer:
    """One run. Example: `with folder.locked(): asyncio.run(Trainer(recipe, folder,
    display).run())`."""

    def __init__(self, recipe: Recipe, folder: RunFolder, display: Display) -> None:
        """Builds the parts; goes on from the folder's newest checkpoint when there is one.

        Raises ConfigError or DataError for what cannot work, before anything is written.
        """
        self._start = time.monotonic()
        self.recipe, self.folder, self.display = recipe, folder, display
        self.algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
        check_recipe_and_algorithm(recipe, self.algorithm)
        self.resumed = None if folder.fresh else self._newest_checkpoint()
        weights = self.resumed.folder if self.resumed else None
        self.parts: Assembly = assemble(recipe, weights, folder.path / "vllm")
        stages = recipe.train.steps + recipe.sft.steps + recipe.preferences.steps
        self.tasks = self._tasks("train", stages)
        check_parts(self.parts, self.algorithm, self.tasks)
        self.heldout = choose_tasks(
            self._tasks("heldout", recipe.evaluation.tasks),
            recipe.evaluation.tasks,
            recipe.evaluation.seed,
        )
        check_splits(self.parts.environment, self.tasks, self.heldout)
        self.curriculum = self._curriculum()
        folder.begin(recipe)
        folder.write_tokenizer(self.parts.tokenizer)
        self.steps_done = 0
        self._unsaved = False
        self._skipped = 0
        self._history: list[Mapping[str, float]] = []
        self._demonstrations: list[Tokens] = []
        self._told: set[tuple[str, str]] = set()
        """Reasons of steps that taught nothing, by phase, that have been said."""
        self._quiet_until = 0
        """No Echo Trap is looked for before that step."""
        if self.resumed:
            self._start -= self.resumed.state["seconds"]

    async def run(self) -> dict[str, Any]:
        """Everything a recipe asks for; returns the report. Cancelled, it saves and ends."""
        of_algorithm = warnings_of(self.recipe, self.algorithm)
        for warning in (*self.parts.environment.warnings, *of_algorithm):
            self.display.say(f"warning: {warning}")
        if len(self.heldout) < self.recipe.evaluation.tasks:
            self.display.say(f"warning: there are only {len(self.heldout)} held-out tasks")
        try:
            await self._check_parity()
            if self.recipe.evaluation.base and not self.resumed:
                await self.evaluate("base", self.parts.environment)
            await self.cold_start()
            await self.evaluate("cold_start", self.parts.environment)
            with settled():
                await self.reinforce()
            await self.prefer()
            await self.evaluate("trained", self.parts.environment)
            for name, variant in self.parts.environment.floors().items():
                await self.evaluate(name, variant)
            await self.imitate()
        finally:
            await self.parts.engine.stop()
            self.display.close()
        return self.report()

    async def cold_start(self) -> None:
        """Supervised learning on scripted demonstrations; its result is step 0 of RL."""
        recipe = self.recipe
        if not recipe.sft.steps or (self.resumed and self.resumed.state["phase"] != SFT):
            return
        await self._demonstrate()
        learner = SupervisedLearner(
            self.parts.model, self._demonstrations, recipe.sft, recipe.learning, recipe.seed
        )
        if self.resumed:
            learner.load_state(self.resumed.learner)
        self.display.phase("cold start", recipe.sft.steps)
        await self._learn_offline(learner, SFT, "cold_start.jsonl", recipe.sft.checkpoint_every)
        self._save(COLD_START, 0, {})
        shutil.rmtree(self.folder.checkpoints / SFT, ignore_errors=True)

    async def reinforce(self) -> None:
        """The RL steps."""
        recipe, train = self.recipe, self.recipe.train
        if self.resumed and self.resumed.state["phase"] == PREFERENCES:
            self.steps_done = train.steps
            return
        learner = self._learner()
        critic = self._critic(learner)
        teacher = load_teacher(recipe) if recipe.teacher.model else None
        if train.steps and self.algorithm.demonstration_coefficient and not self._demonstrations:
            await self._demonstrate()
        roller = self.parts.roller(recipe.rollout)
        for name in ("metrics.jsonl", "timing.jsonl", "no_signal.jsonl"):
            self.folder.rewind(name, self.steps_done)
        self._history = list(self.folder.lines("metrics.jsonl"))
        self.folder.forget_trajectories(self.steps_done)
        run = tracked_run(recipe, self.folder, self.steps_done)
        trackers = Trackers(recipe.monitor.trackers, run, self.display.say)
        pipeline = Pipeline(
            lambda step: self._rollout(roller, step, learner.algorithm),
            range(self.steps_done, train.steps),
            train.max_staleness,
        )
        await self.parts.load(self.steps_done)
        self.display.phase("reinforcement learning", train.steps)
        for _ in range(self.steps_done):
            self.display.advance()
        try:
            while self.steps_done < train.steps:
                pipeline.admit(self.steps_done)
                await self._step(pipeline, learner, critic, teacher, trackers)
                await self.parts.load(self.steps_done)
                if self.steps_done % train.checkpoint_every == 0 or self.steps_done == train.steps:
                    state = self._state(learner, critic)
                    await self._work(partial(self._save, RL, self.steps_done, state))
        except (asyncio.CancelledError, RunStoppedError):
            if self._unsaved:
                self._save(RL, self.steps_done, self._state(learner, critic))
            raise
        finally:
            trackers.close()
            await pipeline.close()

    async def _step(
        self,
        pipeline: Pipeline,
        learner: PolicyLearner,
        critic: Assessor | None,
        teacher: Teacher | None,
        trackers: Trackers,
    ) -> None:
        """Wait for a step's groups, learn from them, and write down what they were."""
        start, step = time.monotonic(), self.steps_done
        played = await pipeline.step(step)
        check_staleness(played.groups, step, self.recipe.train.max_staleness)
        sampled = time.monotonic()
        await self.parts.engine.rest()
        update = await self._work(partial(self._learn, played.groups, learner, critic, teacher))
        if self.curriculum is not None:
            self.curriculum.measure(played.groups)
        self.steps_done, self._unsaved = step + 1, True
        seconds = sampled - start, time.monotonic() - sampled
        await self._work(partial(self._record, played, update, seconds, trackers))
        self._watch(learner, critic)
        self._check_gap(update.metrics)

    async def prefer(self) -> None:
        """Learning from pairs of the policy's own trajectories, sampled when RL is done."""
        recipe, config = self.recipe, self.recipe.preferences
        if not config.steps:
            return
        saved = self.resumed
        if saved and saved.state["phase"] != PREFERENCES:
            saved = None
        pairs = saved_pairs(saved.learner) if saved else best_and_worst(await self._compared())
        if not pairs:
            self.display.say(
                f"warning: no preferences: the rewards of all {config.pairs} groups are all equal"
            )
            return
        await self.parts.engine.rest()
        learner = PreferenceLearner(
            self.parts.model,
            pairs,
            config,
            recipe.learning,
            recipe.rollout.temperature,
            recipe.seed,
        )
        if saved:
            learner.load_state(saved.learner)
        else:
            self._save(PREFERENCES, 0, learner.state())
        self.display.phase("preferences", config.steps)
        every = recipe.train.checkpoint_every
        await self._learn_offline(learner, PREFERENCES, "preferences.jsonl", every)
        self._save(PREFERENCES, learner.steps_done, learner.state())
        self.steps_done += learner.steps_done

    async def imitate(self) -> None:
        """Train what RL is compared with: the weights that the run began with, after as many
        updates on the demonstrations as everything before has made. The model has those weights
        then."""
        recipe = self.recipe
        done = not self.heldout or self.folder.evaluation("sft") is not None
        if not recipe.evaluation.sft or done:
            return
        await self.parts.engine.rest()
        saved, damaged = checkpoint.newest_of_stage(self.folder.checkpoints / IMITATION)
        self._set_aside(damaged)
        begun, _ = load_model(recipe.model, saved.folder if saved else None, recipe.seed)
        self.parts.model.load_state_dict(begun.state_dict())
        if not self._demonstrations:
            await self._demonstrate()
        steps = recipe.sft.steps + recipe.train.steps * recipe.learning.updates_per_step
        config = recipe.sft.model_copy(update={"steps": steps + recipe.preferences.steps})
        learner = SupervisedLearner(
            self.parts.model, self._demonstrations, config, recipe.learning, recipe.seed
        )
        if saved:
            learner.load_state(saved.learner)
        self.display.phase("imitation", config.steps)
        await self._learn_offline(learner, IMITATION, "imitation.jsonl", config.checkpoint_every)
        await self.evaluate("sft", self.parts.environment)
        shutil.rmtree(self.folder.checkpoints / IMITATION, ignore_errors=True)

    async def evaluate(self, name: str, environment: Environment) -> None:
        """One episode on each held-out task; a finished evaluation is not repeated."""
        done = self.folder.evaluation(name)
        if not self.heldout or (done is not None and done.get("step") == self.steps_done):
            return
        config = self.recipe.evaluation
        limits = self.recipe.rollout.model_copy(update={"temperature": config.temperature})
        self.display.phase(f"evaluation: {name}", len(self.heldout))
        await self.parts.load(self.steps_done)
        roller = self.parts.roller(limits, environment)
        groups, summary = await evaluate_policy(
            roller, self.heldout, config.seed, f"evaluation/{name}", self.display
        )
        self.folder.write_trajectories(f"evaluation-{name}", groups)
        self.folder.write_evaluation(name, {"step": self.steps_done, **summary})

    def report(self) -> dict[str, Any]:
        """Write report.json and report.md."""
        names = ("base", "cold_start", "sft", "trained", *self.parts.environment.floors())
        found = {name: self.folder.evaluation(name) for name in names}
        evaluations = {name: summary for name, summary in found.items() if summary is not None}
        seconds = time.monotonic() - self._start
        signal = summary(self.folder.lines("metrics.jsonl"))
        report = build_report(
            self.recipe, self.parts.environment, self.heldout, evaluations, signal, seconds
        )
        self.folder.write_text("report.json", report_json(report))
        self.folder.write_text("report.md", report_markdown(report))
        return report

    async def _demonstrate(self) -> None:
        """Play the scripted demonstrations; the same ones whenever it is done."""
        recipe = self.recipe
        self.display.phase("demonstrations", recipe.sft.demonstrations)
        played = await demonstrate(
            self.parts.environment,
            self.parts.scaffold,
            recipe.rollout,
            self.tasks,
            recipe.sft.behaviours,
            recipe.sft.demonstrations,
            recipe.seed,
            lambda _: self.display.advance(),
        )
        self.folder.write_trajectories("demonstrations", [Group("demonstrations", played)])
        self._demonstrations = [member.tokens for member in played]

    async def _compared(self) -> list[Group]:
        """The groups that preferences are made of."""
        recipe, wanted = self.recipe, self.recipe.preferences.pairs
        self.display.phase("samples to compare", wanted * recipe.train.group_size)
        await self.parts.load(self.steps_done)
        tasks = tasks_of_step(self.tasks, 0, wanted, derive(recipe.seed, "preferences"))
        groups = []
        for start in range(0, wanted, recipe.train.tasks_per_step):
            groups += await self.parts.roller(recipe.rollout).collect(
                tasks[start : start + recipe.train.tasks_per_step],
                recipe.train.group_size,
                recipe.seed,
                f"preferences/{start}",
                lambda _: self.display.advance(),
            )
        self.folder.write_trajectories("preferences", groups)
        return groups

    async def _learn_offline(
        self,
        learner: SupervisedLearner | PreferenceLearner,
        phase: str,
        file: str,
        checkpoint_every: int,
    ) -> None:
        """All steps that a stage without rollouts still has to do."""
        self.folder.rewind(file, learner.steps_done)
        for _ in range(learner.steps_done):
            self.display.advance()
        try:
            while not learner.finished:
                metrics = learner.step()
                self.folder.append(file, {"step": learner.steps_done, **finite(metrics)})
                reason = offline_reason(metrics, learner.name)
                self._tell_signal(phase, learner.steps_done, reason)
                skipped = metrics[f"{learner.name}/skipped_updates"]
                self._count_skipped("a loss or gradient" if skipped else "")
                self.display.advance(f"loss {metrics[f'{learner.name}/loss']:.3f}")
                if learner.steps_done % checkpoint_every == 0:
                    self._save(phase, learner.steps_done, learner.state())
                await asyncio.sleep(0)  # lets a cancellation through
        except asyncio.CancelledError:
            self._save(phase, learner.steps_done, learner.state())
            raise

    def _newest_checkpoint(self) -> checkpoint.Checkpoint | None:
        """Find where to go on; damaged ones after it are told of and set aside."""
        found, damaged = checkpoint.newest(self.folder.checkpoints)
        self._set_aside(damaged)
        if found is not None and damaged:
            self.display.say(f"warning: the run goes on from {found.folder}, the one before")
        return found

    def _set_aside(self, damaged: Mapping[Path, str]) -> None:
        """Rename damaged checkpoints, and tell of each."""
        for folder, problem in damaged.items():
            kept = checkpoint.set_aside(folder)
            self.display.say(f"warning: {problem}; it is kept as {kept.name}")

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
        if self.algorithm.has_reference and not self.recipe.model.lora_rank:
            cold = checkpoint.latest(self.folder.checkpoints / COLD_START)
            if cold is not None:
                checkpoint.check(cold)
            longest = self.recipe.rollout.max_tokens
            reference, _ = load_model(self.recipe.model, cold, longest=longest)
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
            learner.filter_groups(self.resumed.learner["group_filter"])
            self._quiet_until = self.resumed.learner["quiet_until"]
        return learner

    async def _rollout(self, roller: Roller, step: int, algorithm: Algorithm) -> list[Group]:
        """The groups of a step, and as many again while the filter leaves too few of them."""
        train, seed = self.recipe.train, self.recipe.seed
        rollout: Rollout = partial(self.algorithm.call, "rollout")
        if train.spare_episodes:
            rollout = partial(with_spares, spares=train.spare_episodes)
        groups: list[Group] = []
        for again in range(1 + train.refills):
            order = derive(seed, "refill", again) if again else seed
            tasks = self._tasks_of_step(step, order)
            label = f"train/{step}/refill/{again}" if again else f"train/{step}"
            at_once = replace(roller, occasion=step)
            groups += await rollout(at_once, tasks, train.group_size, seed, label)
            if len(kept_groups(groups, algorithm)) >= train.tasks_per_step:
                break
        return groups

    def _tasks_of_step(self, step: int, seed: int) -> list[Task]:
        if self.curriculum is not None:
            return self.curriculum.tasks_of_step(step, seed)
        return tasks_of_step(self.tasks, step, self.recipe.train.tasks_per_step, seed)

    def _curriculum(self) -> Curriculum | None:
        """The curriculum where the newest checkpoint left it; None where all tasks are played."""
        config, train = self.recipe.curriculum, self.recipe.train
        if config.tasks == "all" or not train.steps:
            return None
        curriculum = Curriculum(self.tasks, config, train.tasks_per_step)
        if self.resumed and self.resumed.state["phase"] == RL:
            curriculum.load_state(self.resumed.learner["curriculum"])
        return curriculum

    def _critic(self, learner: PolicyLearner) -> Assessor | None:
        """The critic, the model of process rewards or the self-teacher where the newest checkpoint
        left it; None where the algorithm has none of them."""
        recipe, model = self.recipe, self.parts.model
        critic: Assessor
        if Requirement.CRITIC in self.algorithm.needs:
            critic = make_critic(model, recipe.critic, recipe.learning)
        elif Requirement.PROCESS_REWARDS in self.algorithm.needs:
            reference, config = learner.reference_logprobs, recipe.implicit_reward
            critic = ImplicitReward(
                model, reference, config, recipe.learning, recipe.rollout.temperature
            )
        elif self.algorithm.self_teacher_coefficient:
            critic = SelfTeacher(
                model,
                self.parts.scaffold,
                recipe.self_teacher,
                recipe.learning,
                recipe.rollout.temperature,
            )
        else:
            return None
        if self.resumed and self.resumed.state["phase"] == RL:
            critic.load_state(self.resumed.learner["critic"])
        return critic

    def _learn(
        self,
        groups: list[Group],
        learner: PolicyLearner,
        critic: Assessor | None,
        teacher: Teacher | None,
    ) -> UpdateReport:
        """Advantages, then the updates; in the first steps a critic may be updated alone."""
        measured = self._information(groups, learner)
        assign_penalties(groups, self.algorithm, self.recipe.rollout.max_tokens)
        if critic is not None:
            critic.assess(groups)
        if Requirement.HINDSIGHT in self.algorithm.needs:
            score_in_hindsight(
                groups,
                self.parts.model,
                self.parts.scaffold,
                learner.temperature,
                self.recipe.learning,
            )
        if Requirement.INFORMATION_GAIN in self.algorithm.needs:
            measured |= measure_information_gain(
                groups,
                self.parts.model,
                self.parts.scaffold,
                self.parts.environment.oracle,
                learner.temperature,
                self.recipe.learning,
            )
        if Requirement.SCORE_NORMS in self.algorithm.needs:
            assess_score_norms(groups, self.parts.model, self.recipe.learning, learner.temperature)
        if teacher is not None:
            measured |= teacher.assess(groups)
        learner.assess(groups)
        assign_advantages(groups, learner.algorithm)
        alone = critic is not None and self.steps_done < self.recipe.critic.pretraining_steps
        companion = critic if isinstance(critic, ValueHead | SelfTeacher) else None
        update = UpdateReport({}, [])
        if not alone:
            every = self.recipe.monitor.gradient_variance_every
            noisy = bool(every) and (self.steps_done + 1) % every == 0
            update = learner.update(groups, self._mixed_in(), companion, measure_variance=noisy)
        if critic is not None:
            measured |= critic.update(groups)
        return UpdateReport({**update.metrics, **measured}, update.problems)

    def _information(self, groups: list[Group], learner: PolicyLearner) -> dict[str, float]:
        """How much the reasoning depends on the task, in the steps in which the recipe asks."""
        config = self.recipe.monitor
        every = config.mutual_information_every
        if not every or (self.steps_done + 1) % every:
            return {}
        return mutual_information(
            learner.model,
            groups,
            config.mutual_information_tasks,
            learner.temperature,
            self.recipe.learning,
        )

    def _mixed_in(self) -> list[Example]:
        """The demonstrations of this step's updates."""
        if not self.algorithm.demonstration_coefficient:
            return []
        size, seed = self.recipe.sft.batch_size, self.recipe.seed
        return demonstrations_of_step(self._demonstrations, size, self.steps_done, seed)

    def _state(self, learner: PolicyLearner, critic: Assessor | None) -> dict[str, Any]:
        group_filter = whole_target(learner.algorithm.group_filter)
        changed = {"quiet_until": self._quiet_until, "group_filter": group_filter}
        state = learner.state() | changed
        if critic is not None:
            state["critic"] = critic.state()
        if self.curriculum is not None:
            state["curriculum"] = self.curriculum.state()
        return state

    def _record(
        self,
        played: Played,
        update: UpdateReport,
        seconds: tuple[float, float],
        trackers: Trackers,
    ) -> None:
        """Write and send what a step was; `seconds` are those of waiting for it and learning."""
        groups = played.groups
        waiting, learning = seconds
        metrics = {
            "step": self.steps_done,
            **rollout_metrics(groups),
            **selection_metrics(groups, self.algorithm),
            **(self.curriculum.metrics() if self.curriculum is not None else {}),
            **self._staleness(groups),
            **finite(update.metrics),
        }
        tokens = metrics["rollout/tokens"]
        sampled = metrics["rollout/tokens_sampled"] + sum(
            metrics.get(f"{others}/tokens_sampled", 0.0) for others in ("beside", "spare")
        )
        timing = {
            "step": self.steps_done,
            "seconds/rollout": played.seconds,
            "seconds/waiting": waiting,
            "seconds/update": learning,
            "rollout/sampled_tokens_per_second": sampled / played.seconds,
            "update/tokens_per_second": tokens / learning,
        }
        self.folder.write_trajectories(f"step-{self.steps_done:06d}", groups)
        self.folder.append("metrics.jsonl", metrics)
        self._history.append(metrics)
        self.folder.append("timing.jsonl", timing)
        trackers.log({**metrics, **timing}, self.steps_done)
        self.display.advance(step_text(metrics))
        why = reason(metrics)
        if why is not None:
            self.folder.append("no_signal.jsonl", {"step": self.steps_done, "reason": why})
        self._tell_signal("RL", self.steps_done, why)
        self._count_skipped("; ".join(update.problems))

    def _tell_signal(self, phase: str, step: int, why: str | None) -> None:
        """Say why a step has taught nothing, each reason once."""
        if why is not None and (phase, why) not in self._told:
            self._told.add((phase, why))
            self.display.say(f"warning: no learning signal in {phase} step {step}: {why}")

    async def _work(self, work: Callable[[], Result]) -> Result:
        """Do what takes long: here, or beside the sampling where that goes on meanwhile."""
        return await beside_sampling(work) if self.recipe.train.max_staleness else work()

    def _staleness(self, groups: Sequence[Group]) -> dict[str, float]:
        """How old the tokens were, where they can be; the update is done."""
        if not self.recipe.train.max_staleness:
            return {}
        return staleness_metrics(groups, self.steps_done - 1)

    def _watch(self, learner: PolicyLearner, critic: Assessor | None) -> None:
        """Tell of an Echo Trap and react to it as the recipe says; then not again for some
        steps."""
        config, thresholds = self.recipe.monitor, Thresholds()
        if config.echo_trap == "off" or self.steps_done < self._quiet_until:
            return
        trap = look(self._history, config.highest_reward, thresholds)
        if trap is None:
            return
        self._quiet_until = self.steps_done + thresholds.pause
        self.display.say(str(trap))
        step = self._best_step(self._history[:-1])  # the present one is not saved yet
        best = checkpoint.at(self.folder.checkpoints, step) if step is not None else None
        factor = config.learning_rate_factor
        situation = Situation(trap, learner, critic, self.recipe.model, best, factor)
        self.display.say(REACTIONS.get(config.echo_trap)(situation))

    def _best_step(self, history: Sequence[Mapping[str, float]]) -> int | None:
        """Whose checkpoint is kept, to go back to; None where nothing goes back."""
        if self.recipe.monitor.echo_trap != "roll_back":
            return None
        return best_step(history, self.recipe.train.checkpoint_every)

    async def _check_parity(self) -> None:
        """See that what will be sampled is what is trained, where anything is sampled at all."""
        if self.recipe.train.steps or self.recipe.preferences.steps or self.heldout:
            await self.parts.check()
            await self.parts.engine.rest()

    def _check_gap(self, metrics: Mapping[str, float]) -> None:
        """Stop the run where learner and engine disagree on what was sampled. There is no bound
        where they have to: in steps sampled ahead by older weights, and where some tokens were left
        out."""
        limits, ahead = self.recipe.rollout, self.recipe.train.max_staleness > 0
        left_out = limits.top_k > 0 or limits.top_p < 1 or limits.min_p > 0
        bound = math.inf if ahead or left_out else self.recipe.parity_bound
        check_gap(metrics.get("policy/logprob_gap", 0.0), bound, self.steps_done)

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
        best = self._best_step(self._history) if phase == RL else None
        checkpoint.prune(root, self.recipe.train.keep_checkpoints, best)
        release_memory()
        self._unsaved = False
