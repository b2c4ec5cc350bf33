"""Held-out evaluation during RL: success every few steps, the best checkpoint, an early stop.

Its tasks are held-out ones that the final evaluation does not play: a checkpoint that was chosen by
them is still measured on tasks that had no part in the choice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.evaluation.evaluate import summarise
from turnwise.models.copies import put_weights
from turnwise.models.load import load_model
from turnwise.rollout.runner import members_of
from turnwise.storage import checkpoint
from turnwise.training.context import RunContext

FILE = "validation.jsonl"


class Validation:
    """Evaluations of RL steps that are multiples of `evaluation.during_rl.every`; none without it.

    Args:
        step: steps that are done; evaluations of later ones, of an interrupted process, are
            forgotten.
    """

    def __init__(self, context: RunContext, step: int) -> None:
        self._context = context
        self._config = context.recipe.evaluation.during_rl
        if self._config is not None:
            context.folder.rewind(FILE, step)
        self._found: list[Mapping[str, Any]] = list(context.folder.lines(FILE))

    @property
    def best_step(self) -> int | None:
        """The step with the most success, the earliest of equals; None before the first."""
        return best_step(self._found)

    @property
    def kept_step(self) -> int | None:
        """The step with whose weights RL ends; None for the last one."""
        return self.best_step if self._config is not None and self._config.keep_best else None

    @property
    def stops(self) -> bool:
        """Whether the last `evaluation.during_rl.patience` evaluations brought no better step."""
        patience = self._config.patience if self._config is not None else 0
        steps = [line["step"] for line in self._found]
        return 0 < patience < len(steps) and self.best_step not in steps[-patience:]

    async def check(self, step: int) -> dict[str, float]:
        """Evaluate the weights after a step, if it is due and not done; returns what was found."""
        if self._config is None or step == 0 or step % self._config.every:
            return {}
        if any(line["step"] == step for line in self._found):
            return {}
        context, config = self._context, self._context.recipe.evaluation
        limits = context.recipe.rollout.unlearned(config.temperature)
        await context.components.load(step)
        runner = context.components.runner(limits, step=step)
        # One label for all steps: episodes differ by the weights, and not by their luck.
        groups = await runner.collect(context.validation, 1, config.seed, "validation")
        summary = summarise(members_of(groups))
        names = ("success", "low", "high", "n", "reward", "tool_calls")
        found = {f"validation/{name}": summary[name] for name in names}
        context.folder.append(FILE, {"step": step, **found})
        self._found.append({"step": step, **found})
        return found

    def restore_best(self) -> int | None:
        """Give the model the best step's weights, where the recipe asks for them; returns which
        step that is, None where nothing is restored."""
        context, recipe, best = self._context, self._context.recipe, self.kept_step
        if best is None:
            return None
        folder = checkpoint.at(context.folder.checkpoints, best)
        if folder is None:  # of a run that went on from an older one, the newest being damaged
            context.display.say(f"warning: the best step, {best}, is not saved: the last is kept")
            return None
        checkpoint.check(folder)
        weights, _ = load_model(recipe.model, folder, in_files=recipe.policy_in_files)
        put_weights(context.components.model, weights)
        context.display.say(f"the weights of step {best} are kept: the best on validation tasks")
        return best


def best_step(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """The `step` of the line with the highest `validation/success`, the earliest of equals."""
    if not lines:
        return None
    best = max(lines, key=lambda line: (line["validation/success"], -line["step"]))
    return int(best["step"])
