"""The parts of a recipe that a worker has: environment, scaffold and reward, and no model.

Not here: what it does with them (`worker.py`).
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from turnwise.engines.base import Engine
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.rewards.composition import Reward, make_reward
from turnwise.rollout.episode import Episode
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.remote_episode import Assignment
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import make_scaffold
from turnwise_cluster.workers.frames import Setup


@dataclass(frozen=True)
class Parts:
    """Example: `parts_of(setup).episode(assignment, engine)`."""

    environment: Environment
    variants: Mapping[str, Environment]
    """Its ablations."""
    scaffold: Scaffold
    reward: Reward | None

    def episode(self, assignment: Assignment, engine: Engine) -> Episode:
        """The agent loop of an assignment."""
        variant = assignment.variant
        return Episode(
            planned=assignment.planned,
            prototype=self.variants[variant] if variant else self.environment,
            limits=assignment.limits,
            reward=self.reward,
            weights=assignment.weights,
            scaffold=self.scaffold,
            engine=engine,
            session="",
            semaphore=PrioritySemaphore(1),
            start=assignment.start,
            snapshots=assignment.snapshots,
        )


def parts_of(setup: Setup) -> Parts:
    """Build the parts, where the process of the run has built its own. Raises UserError for what is
    not there on this machine."""
    if os.path.isdir(setup.folder):
        os.chdir(setup.folder)
    sys.path += [place for place in setup.path if place not in sys.path]
    recipe = setup.recipe
    environment = environment_of(recipe)
    scaffold = make_scaffold(recipe.scaffold, setup.tokenizer, environment.tools())
    reward = None
    if recipe.reward is not None:
        # The process of the run has checked whether success dominates, where it has to.
        config = recipe.reward.model_copy(update={"dominance": False})
        reward = make_reward(config, environment.spec.parts, recipe.rollout.max_turns)
    return Parts(environment, environment.ablations(), scaffold, reward)


def facts_of(environment: Environment) -> str:
    """Whatever has to be the same in all processes of a run, as a text."""
    spec = environment.spec
    data = spec.data_hash or "unhashed"
    return f"turnwise {version('turnwise')}, {spec.name} {spec.version}, data {data}"
