"""Reinforcement learning: sample a step's groups, learn from them, record them, watch, save.

    tasks ─> sample ─> measure, estimate, update (learners.py) ─> record ─> new weights ─┐
      └──────────────────────────────── next step ────────────────────────────────────────┘

Where steps are sampled ahead (`max_staleness`), the next ones are sampled during the update. What a
step does depends on the recipe, the seed, the step number and what a checkpoint holds, so a run
that goes on from one ends with the weights of one that never stopped; of steps sampled ahead no
task is lost and none is counted twice.

Next: `rollout/pipeline.py`.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from turnwise.config import BySuccess
from turnwise.errors import RunStoppedError
from turnwise.monitor.no_signal import BEYOND_BOUND
from turnwise.rewards.costs import CostMultipliers
from turnwise.rollout.collect import Rollout, oversampled_groups
from turnwise.rollout.order import Curriculum, RolloutSchedule, tasks_of_step
from turnwise.rollout.pipeline import (
    Pipeline,
    Played,
    StalenessError,
    beside_sampling,
    check_staleness,
)
from turnwise.seeds import derive
from turnwise.storage import checkpoint
from turnwise.threads import frozen_gc
from turnwise.training.alarms import check_logprob_gap
from turnwise.training.context import RunContext
from turnwise.training.echo_trap_watch import EchoTrapWatch
from turnwise.training.learners import Learners
from turnwise.training.recording import Recorder, StepTimes
from turnwise.training.validation import Validation
from turnwise.types import Group, Task

Result = TypeVar("Result")


class Reinforcement:
    """The stage of RL."""

    async def run(self, context: RunContext, step: int) -> int:
        loop, every = ReinforcementLoop(context), context.recipe.train.checkpoint_every
        try:
            await loop.begin()
            with frozen_gc():
                while not loop.finished:
                    for due in loop.pipeline.admit(loop.step):
                        loop.pipeline.add(due, asyncio.create_task(loop.sample(due)))
                    played = await loop.learn()
                    with context.phases.of("validation"):
                        # Before the save, which keeps the best step's checkpoint.
                        await loop.validate()
                    with context.phases.of("weights"):
                        await context.components.load(loop.step)
                    if loop.step % every == 0 or loop.finished:
                        with context.phases.of("checkpoint"):
                            await loop.save()
                    context.folder.write_timeline(loop.step, played.groups, context.phases.take())
            loop.learners.policy.wait_until_saved()  # the last one may still be written
        # In these ends all parts are sound; what a bug leaves behind is not saved.
        except (asyncio.CancelledError, RunStoppedError):
            loop.save_unsaved()
            raise
        finally:
            await loop.close()
        return loop.validation.restore_best() or loop.step


class ReinforcementLoop:
    """The phases of a step, and what has to outlast one."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        saved = context.saved_in(checkpoint.REINFORCEMENT)
        self.step = saved.step if saved is not None else 0
        """Steps that are done: the version of the present weights."""
        self.learners = Learners(context)
        self.curriculum = _curriculum(context)
        self.multipliers = CostMultipliers(context.components.reward)
        self.schedule = RolloutSchedule(context.recipe.rollout)
        self.recorder = Recorder(context, self.step)
        self.validation = Validation(context, self.step)
        self.watch = EchoTrapWatch(context, self.recorder.history, self.validation)
        train = context.recipe.train
        self.pipeline = Pipeline(range(self.step, train.steps), train.max_staleness)
        self._unsaved = False
        if saved is not None:
            self.learners.load_state(saved.learner)
            self.watch.quiet_until = saved.learner["quiet_until"]
            self.multipliers.load_state(saved.learner["multipliers"])
            self.schedule.load_state(saved.learner["schedule"])
            if self.curriculum is not None:
                self.curriculum.load_state(saved.learner["curriculum"])

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or validation stops them."""
        return self.step == self.context.recipe.train.steps or self.validation.stops

    async def begin(self) -> None:
        """Make ready for the first step that is left."""
        context = self.context
        await self.learners.prepare()
        await context.components.load(self.step)
        context.display.phase("reinforcement learning", context.recipe.train.steps)
        for _ in range(self.step):
            context.display.advance()
        await self.validate()  # an interrupted process may have left it undone
        keep = context.recipe.train.keep_checkpoints
        checkpoint.prune(context.folder.checkpoints, keep, self._best)  # and this

    async def learn(self) -> Played:
        """Wait for a step's groups, learn from them, and write down what they were."""
        context, begun = self.context, time.monotonic()
        with context.phases.of("waiting"):
            played = await self.pipeline.step(self.step)
        self._check_staleness(played)
        if context.components.player is not None:
            context.components.player.check(played.groups)
        sampled = time.monotonic()
        await context.components.engine.sleep()  # its memory is the learner's meanwhile
        learned = await self._beside_sampling(
            partial(self.learners.learn, played.groups, self.step, played.refinement)
        )
        if self.curriculum is not None:
            self.curriculum.measure(played.groups)
        self.step, self._unsaved = self.step + 1, True
        times = StepTimes(played.seconds, sampled - begun, time.monotonic() - sampled)
        metrics = self.curriculum.metrics() if self.curriculum is not None else {}
        metrics |= self.schedule.metrics(self.step - 1, played.horizon)
        metrics |= self.multipliers.metrics()  # before these costs move them
        self.multipliers.measure(played.groups)
        self.schedule.measure(played.groups, played.horizon)
        with context.phases.of("recording"):
            await self._beside_sampling(
                partial(self.recorder.record, self.step, played, learned, times, metrics)
            )
        self.watch.check(self.step, self.learners)
        check_logprob_gap(context.recipe, learned.update.metrics, self.step)
        return played

    async def validate(self) -> None:
        """Evaluate on validation tasks, if that is due."""
        self.recorder.log(self.step, await self.validation.check(self.step))

    async def sample(self, step: int) -> Played:
        """Play the groups of a step, and as many again while the filter leaves too few of them;
        then ask a judge that is trained what is known of their episodes."""
        context, algorithm, begun = self.context, self.context.algorithm, time.monotonic()
        train, seed = context.recipe.train, context.recipe.seed
        reward = context.components.reward
        weights = reward.weights(step, self.multipliers.values) if reward is not None else {}
        runner = context.components.runner(self.schedule.limits(step))
        runner = replace(runner, priority=step, weights=weights)
        rollout: Rollout = algorithm.function("rollout")
        if train.oversample:
            rollout = partial(oversampled_groups, extra=train.oversample)
        groups: list[Group] = []
        for again in range(1 + train.dynamic_sampling_rounds):
            # The first round is what a recipe without rounds plays.
            tasks = self._tasks(step, derive(seed, "round", again) if again else seed)
            label = f"train/{step}/round/{again}" if again else f"train/{step}"
            played = await rollout(runner, tasks, train.group_size, seed, label)
            groups += await runner.judge(played)
            if self.learners.kept(groups) >= train.tasks_per_step:
                break
        refinement: list[Group] = []
        for source in context.components.reward_sources.values():
            refinement += await source.refine(runner, groups, seed, step)
        seconds = time.monotonic() - begun
        return Played(groups, seconds, runner.limits.max_turns, refinement)

    def _tasks(self, step: int, seed: int) -> list[Task]:
        if self.curriculum is not None:
            return self.curriculum.tasks_of_step(step, seed)
        return tasks_of_step(
            self.context.tasks, step, self.context.recipe.train.tasks_per_step, seed
        )

    async def save(self) -> None:
        await self._beside_sampling(self._save)

    def save_unsaved(self) -> None:
        """Write a checkpoint of steps that have none yet, whole, before the run ends."""
        if self._unsaved:
            self._save()
        self.learners.policy.wait_until_saved()

    async def close(self) -> None:
        """End the trackers' runs, and cancel what is being sampled."""
        self.recorder.close()
        self.learners.policy.close()
        await self.pipeline.close()

    def _check_staleness(self, played: Played) -> None:
        bound = self.context.recipe.train.max_staleness
        try:
            check_staleness([*played.groups, *played.refinement], self.step, bound)
        except StalenessError:
            self.recorder.log_no_signal(self.step + 1, BEYOND_BOUND)
            raise

    @property
    def _best(self) -> int | None:
        """The step whose checkpoint is kept beside the newest ones."""
        return self.watch.best_step(self.recorder.history) or self.validation.best_step

    def _save(self) -> None:
        state = self.learners.state() | {"quiet_until": self.watch.quiet_until}
        state["multipliers"] = self.multipliers.values
        state["schedule"] = self.schedule.state()
        if self.curriculum is not None:
            state["curriculum"] = self.curriculum.state()
        self.learners.save(self.step, state, self._best)
        self._unsaved = False

    async def _beside_sampling(self, work: Callable[[], Result]) -> Result:
        """Do blocking work: here, or in a thread where sampling goes on meanwhile."""
        return await beside_sampling(work) if self.context.recipe.train.max_staleness else work()


def _curriculum(context: RunContext) -> Curriculum | None:
    config, train = context.recipe.curriculum, context.recipe.train
    if not isinstance(config, BySuccess):
        return None
    return Curriculum(context.tasks, config, train.tasks_per_step)
