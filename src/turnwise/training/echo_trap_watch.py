"""Looks for the Echo Trap (`monitor/echo_trap.py`) after each step, and reacts to it."""

from collections.abc import Mapping, Sequence

from turnwise.monitor.echo_trap import Thresholds, detect
from turnwise.storage import checkpoint
from turnwise.training.context import RunContext
from turnwise.training.learners import Learners
from turnwise.training.reactions import REACTIONS, Situation, best_step
from turnwise.training.validation import Validation


class EchoTrapWatch:
    """A watch for the Echo Trap, which is quiet for some steps after a reaction.

    Args:
        history: the metrics of every step so far; the caller appends to it.
        validation: the held-out evaluations so far.
    """

    def __init__(
        self, context: RunContext, history: Sequence[Mapping[str, float]], validation: Validation
    ) -> None:
        self._context, self._history, self._validation = context, history, validation
        self.quiet_until = 0
        """No Echo Trap is looked for before that step."""

    def check(self, step: int, learners: Learners) -> None:
        """Say what was found after a step, and react to it. Raises RunStoppedError where the
        reaction is to stop."""
        context, thresholds = self._context, Thresholds()
        config = context.recipe.monitor.echo_trap
        if config.reaction == "off" or step < self.quiet_until:
            return
        trap = detect(self._history, config.highest_reward, thresholds)
        if trap is None:
            return
        self.quiet_until = step + thresholds.pause
        context.display.say(str(trap))
        best = self.best_step(self._history[:-1])  # the present one is not saved yet
        kept = None
        if best is not None:
            # Learners of several processes may still be writing it.
            learners.policy.wait_until_saved()
            kept = checkpoint.at(context.folder.checkpoints, best)
        situation = Situation(
            trap, learners, context.recipe.model, kept, config.learning_rate_factor
        )
        context.display.say(REACTIONS.get(config.reaction)(situation))
        # A reaction may have changed the weights of this process alone.
        learners.policy.broadcast()

    def best_step(self, history: Sequence[Mapping[str, float]]) -> int | None:
        """The step whose checkpoint is kept, to go back to; None where nothing goes back.

        It has the most held-out success, or, while nothing was evaluated, the best rewards."""
        if self._context.recipe.monitor.echo_trap.reaction != "roll_back":
            return None
        every = self._context.recipe.train.checkpoint_every
        return self._validation.best_step or best_step(history, every)
