"""The models that learn in RL: the policy, and what its algorithm has beside it.

Next: `learning/credits.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedModel

from turnwise.learning.auxiliary import demonstrations_of_step
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.learner import Learner, UpdateReport
from turnwise.learning.selection import evenly_mixed, kept_groups
from turnwise.learning.signals.base import Signals, measure
from turnwise.learning.signals.makers import signals_of, words_of
from turnwise.registry import whole_target
from turnwise.rollout.order import temperature_at
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint
from turnwise.storage.tensors import read
from turnwise.tokens import Tokens
from turnwise.training.context import RunContext
from turnwise.types import Group


@dataclass(frozen=True)
class Learned:
    """The groups that a step learned from, and the report of its updates."""

    groups: Sequence[Group]
    """The episodes, or the parts of their roles."""

    signals: Signals
    credits: Credits
    update: UpdateReport
    """The report of the updates; its metrics are all that the step measured."""


class Learners:
    """The policy's learner, and the critic or the like where the algorithm has one."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.algorithm = context.algorithm
        """The algorithm with its present filter on groups, which a reaction may change."""
        recipe = context.recipe
        before = checkpoint.before_rl(context.folder.checkpoints)
        words = words_of(context.algorithm, context.components.scaffold)
        self.policy: Learner = context.resources.learner(
            recipe, context.algorithm, context.components.model, words, before
        )
        """The policy's learner, with the models that the algorithm wants beside it."""
        self.reward_sources = context.components.reward_sources
        """The models that measure parts of the reward, some of which learn beside the policy."""
        self._demonstrations: list[Tokens] = []

    async def prepare(self) -> None:
        """Play the demonstrations that the algorithm mixes into its updates."""
        if self._context.algorithm.demonstration_coefficient:
            self._demonstrations = await self._context.demonstrations.tokens()

    def learn(
        self, groups: Sequence[Group], step: int, refinement: Sequence[Group] = ()
    ) -> Learned:
        """Measure, estimate, update, in step `step`, counted from 0; in the first ones a critic may
        be updated alone. Replies of a judge that is trained (`refinement`) are measured, filtered
        and compared apart, and learned from in the same updates. Where roles get credit of their
        own, the parts of roles are what is learned from."""
        groups = self.compared(groups)
        recipe, components, policy = self._context.recipe, self._context.components, self.policy
        # Of the step, and not of the moment: the tokens were sampled at it, maybe steps ago.
        policy.set_temperature(temperature_at(recipe.rollout, step))
        second = policy.second
        models = second, policy.teacher
        scaffold, oracle = components.scaffold, components.environment.oracle
        asked = signals_of(recipe, self.algorithm, policy, scaffold, oracle, models)
        with self._context.phases.of("signals"):
            signals = measure(asked, groups)
            credits = estimate(groups, signals, self.algorithm)
            taught = groups
            if refinement:
                apart = measure(asked, refinement)
                credits = credits.merged_with(estimate(refinement, apart, self.algorithm))
                signals, taught = signals.merged_with(apart), evenly_mixed(groups, refinement)
        metrics = {**signals.metrics, **self._information(groups, step)}
        update = UpdateReport({}, [])
        critic = recipe.algorithm.critic
        if critic is None or step >= critic.pretraining_steps:
            auxiliary = policy.auxiliary_loss(signals)
            every = recipe.monitor.gradient_variance_every
            noisy = bool(every) and (step + 1) % every == 0
            with self._context.phases.of("update"):
                update = policy.update(
                    taught, credits, self._mixed_in(step), auxiliary, measure_variance=noisy
                )
        if second is not None:
            with self._context.phases.of("critic"):
                metrics |= second.update(taught, signals, credits)
        for source in self.reward_sources.values():
            metrics |= source.learn(groups)
        report = replace(update, metrics={**update.metrics, **metrics})
        return Learned(groups, signals, credits, report)

    def compared(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups whose members are compared: of episodes, or of the parts a player has made."""
        player = self._context.components.player
        return groups if player is None else player.compared(groups)

    def kept(self, groups: Sequence[Group]) -> int:
        """The number of groups of which something would be learned from."""
        names = {group.id for group in kept_groups(self.compared(groups), self.algorithm)}
        # Those of roles are GROUP@ROLE, and either name may have an @ of its own.
        names |= {name[:at] for name in names for at, sign in enumerate(name) if sign == "@"}
        return sum(group.id in names for group in groups)

    def filter_groups(self, group_filter: str) -> None:
        """Train on the groups that another filter keeps from now on."""
        self.algorithm = replace(self.algorithm, group_filter=group_filter)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs of the learners, for `load_state`."""
        # A path is made absolute: the run may go on from another folder.
        group_filter = whole_target(self.algorithm.group_filter)
        state = self.policy.state() | {"group_filter": group_filter}
        for name, source in self.reward_sources.items():
            state |= {name: kept} if (kept := source.state()) else {}
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state`, of a checkpoint, was taken."""
        self.policy.load_state(state)
        self.filter_groups(state["group_filter"])
        for name, source in self.reward_sources.items():
            if name in state:
                source.load_state(read(state[name]))

    def rollback(self, kept: Checkpoint, weights: PreTrainedModel) -> None:
        """Let policy and second model be what they were in a checkpoint, whose weights are given;
        the learning rate stays lowered as far as it is now."""
        factor = self.policy.state()["learning_rate_factor"]
        self.policy.take_weights(weights)
        self.policy.load_state({**kept.learner, "learning_rate_factor": factor})

    def save(self, step: int, state: Mapping[str, Any], best: int | None) -> None:
        """Write a checkpoint of RL; several processes write it while the run goes on."""
        self._context.save(self.policy, checkpoint.REINFORCEMENT, step, state, best)

    def _information(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """How much the reasoning depends on the task, in the steps in which the recipe asks."""
        config = self._context.recipe.monitor.mutual_information
        if config is None or (step + 1) % config.every:
            return {}
        from turnwise.monitor.mutual_information import mutual_information

        return mutual_information(self.policy.score, groups, config.tasks)

    def _mixed_in(self, step: int) -> list[Example]:
        if not self._demonstrations:
            return []
        recipe = self._context.recipe
        return demonstrations_of_step(
            self._demonstrations, recipe.sft.batch_size, step, recipe.seed
        )
