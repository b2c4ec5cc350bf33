"""Reactions of a run to the Echo Trap: one function for each name a recipe may give.

Whatever a reaction changes is saved with the learner, so that a resumed run has it too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import ModelConfig, Recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.models.load import load_model
from turnwise.monitor.echo_trap import REWARD, EchoTrap, Thresholds
from turnwise.registry import Registry
from turnwise.storage import checkpoint
from turnwise.training.learners import Learners

STRICT_FILTER = "top_spread"
"""The group filter of StarPO-S (RAGEN, arXiv 2504.20073)."""
ADVICE = "Train on the groups that differ most (algorithm starpo_s), or lower learning_rate"


@dataclass(frozen=True)
class Situation:
    """The parts of a run that a reaction may look at and change."""

    trap: EchoTrap
    learners: Learners
    model: ModelConfig
    best: Path | None
    """The best checkpoint so far; None where none is kept."""
    factor: float
    """The factor of the learning rate, in (0, 1)."""


Reaction = Callable[[Situation], str]
"""A reaction changes parts of a run, and returns a text for people about it."""
REACTIONS: Registry[Reaction] = Registry(
    "reaction", callable, "give a function of the situation that returns what it did"
)


@REACTIONS.built_in("warn")
def warn(situation: Situation) -> str:
    """Gives advice, and changes nothing."""
    return ADVICE


@REACTIONS.built_in("stop")
def stop(situation: Situation) -> str:
    """Ends the run: always raises RunStoppedError."""
    raise RunStoppedError(f"{situation.trap}. {ADVICE}")


@REACTIONS.built_in("lower_learning_rate")
def lower_learning_rate(situation: Situation) -> str:
    """Multiplies the policy's learning rate by the factor."""
    rate = situation.learners.policy.lower_learning_rate(situation.factor)
    return f"The learning rate is {situation.factor:g} times what it was: now {rate:.3g}"


@REACTIONS.built_in("filter")
def switch_filter(situation: Situation) -> str:
    """Trains from now on only on the groups whose rewards differ most."""
    learners = situation.learners
    if learners.algorithm.group_filter == STRICT_FILTER:
        return f"The group filter is {STRICT_FILTER} already: nothing is changed. {ADVICE}"
    learners.filter_groups(STRICT_FILTER)
    share = learners.algorithm.numbers_of("group_filter")["share"]
    return (
        f"From now on the {share:.0%} of a step's groups whose rewards differ most are trained on "
        f"(group_filter {STRICT_FILTER})"
    )


@REACTIONS.built_in("roll_back")
def roll_back(situation: Situation) -> str:
    """Goes back to the best checkpoint's weights and optimizer, with a lower learning rate.

    Steps are counted on: tasks and seeds are those of steps not yet done.
    """
    if situation.best is None:  # as where damage has taken it
        return f"There is no checkpoint to go back to. {lower_learning_rate(situation)}"
    kept = checkpoint.load(situation.best)
    weights, _ = load_model(situation.model, situation.best, in_files=True)  # copied at once
    situation.learners.rollback(kept, weights)
    return (
        f"Weights and optimizer are again those of step {kept.step}, the best so far. "
        + lower_learning_rate(situation)
    )


def check_reaction(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for an unknown reaction, or one that could do nothing."""
    reaction, every = recipe.monitor.echo_trap.reaction, recipe.train.checkpoint_every
    if reaction == "off":
        return
    REACTIONS.get(reaction)
    if reaction == "filter" and algorithm.group_filter == STRICT_FILTER:
        raise ConfigError(
            f"monitor.echo_trap.reaction = filter switches to group_filter {STRICT_FILTER}, which "
            f"algorithm {algorithm.name} has from the beginning: choose another reaction"
        )
    if reaction == "roll_back" and every >= Thresholds().fewest_steps:
        raise ConfigError(
            "monitor.echo_trap.reaction = roll_back needs a checkpoint to go back to, and may be "
            f"asked to at step {Thresholds().fewest_steps}: set train.checkpoint_every below that"
        )


def best_step(history: Sequence[Mapping[str, float]], every: int) -> int | None:
    """The step, a multiple of `every`, up to which the training reward was highest, averaged over
    a window; the earliest of equals; None before the first.

    `history` holds every step from the first one.
    """
    window = Thresholds().window
    windows = {
        step: [line[REWARD] for line in history[max(0, step - window) : step] if REWARD in line]
        for step in range(every, len(history) + 1, every)
    }
    averages = {step: fmean(rewards) for step, rewards in windows.items() if rewards}
    return max(averages, key=averages.__getitem__, default=None)
