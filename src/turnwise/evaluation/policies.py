"""The evaluation of a policy without a run: a recipe's, a run's newest weights, or a checkpoint's.

Nothing heavy is imported before names are checked and threads are set.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise import event_loop
from turnwise.config import OpenAIEngineConfig, Recipe
from turnwise.errors import ConfigError, DataError
from turnwise.monitor.display import Display
from turnwise.registry import Registry
from turnwise.threads import configure_threads, set_variables

if TYPE_CHECKING:
    from turnwise.evaluation.kept import Evaluated
    from turnwise.parts.components import Components
    from turnwise.storage.checkpoint import Checkpoint
    from turnwise.storage.run_folder import RunFolder

EVALUATED = "evaluated"
"""The name of an evaluation that no run made."""

EVALUATIONS: Registry[Callable[..., Any]] = Registry("evaluation", callable, "give a function")
"""Evaluations of wings: `endpoint`, of a served model, and `robustness`, under worse conditions."""

RECIPE, SUMS = "config.toml", "SHA256SUMS"
"""The files by which a run's folder and a checkpoint's are known."""


def run_of(policy: Path) -> Path | None:
    """The run whose folder a path is, or whose checkpoint; None for anything else."""
    if (policy / RECIPE).is_file():
        return policy
    if not (policy / SUMS).is_file():
        return None
    return next((folder for folder in policy.parents if (folder / RECIPE).is_file()), None)


def evaluate_recipe(
    recipe: Recipe, policy: Path | None, display: Display, out: "RunFolder | None" = None
) -> dict[str, Any]:
    """The summary of a recipe's policy on its held-out tasks; of a run's newest weights, or of a
    checkpoint, where `policy` is its folder; of a model behind an endpoint, where the recipe's
    engine is one. All of it is kept in `out`."""
    if isinstance(recipe.engine, OpenAIEngineConfig):
        from turnwise.parts.first_checks import check_names

        check_names(recipe)
        summary: dict[str, Any] = EVALUATIONS.get("endpoint")(recipe, recipe.engine, display, out)
        return summary
    of_run = policy is not None
    alone = {name: one.for_evaluation(of_run) for name, one in recipe.added().items()}
    set_variables()
    from turnwise.parts.first_checks import evaluated

    known = evaluated(recipe)
    configure_threads(recipe.threads)
    from turnwise.parts.components import build_components
    from turnwise.parts.resources import resources_of

    saved = None if policy is None else checkpoint_of(policy, display)
    weights = None if saved is None else saved.folder
    step = 0 if saved is None else reward_step(recipe, saved)
    kept = None if out is None else out.path
    with resources_of(recipe.model_copy(update=alone), kept) as found:
        own = None if found.servers is None else kept
        parts = build_components(recipe, weights, own, found, known)

        async def work() -> dict[str, Any]:
            try:
                return await evaluate_parts(parts, display, True, step, out, weights)
            finally:
                await parts.stop()

        return event_loop.run(work())


async def evaluate_parts(
    parts: "Components",
    display: Display,
    check: bool = False,
    step: int = 0,
    out: "RunFolder | None" = None,
    weights: Path | None = None,
) -> dict[str, Any]:
    """The summary of the policy as the engine has it now, with the reward of a step of RL; with
    `check` see `Components.check`. All is kept in `out`; `weights` is the policy's checkpoint."""
    from turnwise.evaluation.kept import write_evaluations
    from turnwise.evaluation.statement import model_text, weights_text

    if check:
        await parts.check()
    found = await played_parts(parts, display, "evaluation", step)
    display.close()
    if out is not None:
        policy = f"{model_text(parts)}; {weights_text(weights)}"
        kept = {EVALUATED: found}
        write_evaluations(out, parts.recipe, parts.environment, kept, policy, parts.tokenizer, step)
    return dict(found.summary)


async def played_parts(parts: "Components", display: Display, name: str, step: int) -> "Evaluated":
    """An evaluation of the policy as the engine has it now; `name` is for the display, `step` is
    the reward's. Raises ConfigError where there are no tasks."""
    from turnwise.evaluation.evaluate import evaluate_policy
    from turnwise.evaluation.kept import Evaluated
    from turnwise.rollout.order import choose_tasks

    config = parts.recipe.evaluation
    tasks = choose_tasks(parts.environment.tasks("heldout"), config.tasks, config.seed)
    if not tasks:
        raise ConfigError("there is nothing to evaluate: no held-out tasks, or evaluation.tasks=0")
    display.phase(name, config.episodes_per_task * len(tasks))
    limits = parts.recipe.rollout.unlearned(config.temperature)
    runner = parts.runner(limits, progress=lambda _: display.advance(), step=step)
    return Evaluated(*await evaluate_policy(runner, tasks, config, f"evaluation/{EVALUATED}"))


def reward_step(recipe: Recipe, saved: "Checkpoint") -> int:
    """The step of RL whose reward the weights of a checkpoint are evaluated with."""
    from turnwise.storage import checkpoint

    if checkpoint.follows_rl(saved.stage):
        return recipe.train.steps
    return saved.step if saved.stage == checkpoint.REINFORCEMENT else 0


def checkpoint_of(policy: Path, display: Display) -> "Checkpoint":
    """The checkpoint that a folder is, or its run's newest. DataError for none, or damage."""
    from turnwise.storage import checkpoint

    if (policy / RECIPE).is_file():
        return newest_checkpoint(policy, display)
    return checkpoint.load(policy)


def newest_checkpoint(run: Path, display: Display) -> "Checkpoint":
    """A run's newest undamaged checkpoint, with a warning of others. DataError for none."""
    from turnwise.storage import checkpoint

    found, damaged = checkpoint.newest(run / "checkpoints")
    if found is None:
        raise DataError(f"{run} has no checkpoint yet")
    for problem in damaged.values():
        display.say(f"warning: {problem}; used is {found.folder}")
    return found
