"""A run: its stages in order, and its report.

It can be stopped anywhere (`stopping.py`) and goes on from its newest checkpoint.

Next: `training/reinforcement.py`.
"""

from typing import Any

from turnwise.config import Recipe
from turnwise.environments.splits import shared_tasks
from turnwise.evaluation.kept import compare_within
from turnwise.evaluation.report import write_report
from turnwise.evaluation.statement import computes_text, model_text
from turnwise.parts.algorithm_checks import warnings_of
from turnwise.stopping import name_main_task
from turnwise.storage import checkpoint
from turnwise.storage.run_folder import POLICIES
from turnwise.training.before_run import write_before_run
from turnwise.training.cold_start import ColdStart
from turnwise.training.context import RunContext, Stage
from turnwise.training.evaluations import Evaluation, Untrained
from turnwise.training.imitation import Imitation
from turnwise.training.reinforcement import Reinforcement
from turnwise.training.validation import Validation
from turnwise.wings import loaded, wings


async def run(context: RunContext) -> dict[str, Any]:
    """Do everything a recipe asks for; returns the report. Cancelled, it saves and ends.

    Example: `with folder.locked(): asyncio.run(run(prepare(recipe, folder, display)))`.
    """
    name_main_task()
    _warn(context)
    stages = stages_of(context)
    step = 0
    if context.saved is not None:
        stages = stages[_position(context.recipe, stages, context.saved.stage) :]
        if checkpoint.follows_rl(context.saved.stage):
            rows = context.folder.lines("metrics.jsonl")  # none where there was no RL
            last = rows[-1]["step"] if rows else 0
            # RL may have ended with the weights of its best step.
            step = Validation(context, last).kept_step or last
    try:
        await _check_parity(context)
        for stage in stages:
            step = await stage.run(context, step)
    finally:
        await context.components.stop()
        context.display.close()
    return _write_report(context)


def stages_of(context: RunContext) -> list[Stage]:
    """List the stages that the recipe asks for, in order."""
    recipe, environment = context.recipe, context.components.environment
    stages = _of_wings(recipe, "first")
    base = recipe.evaluation.base
    if base:
        stages.append(Untrained(base) if isinstance(base, str) else Evaluation("base", environment))
    if recipe.sft.steps:
        stages.append(ColdStart())
    later: list[Stage] = [Reinforcement()] if recipe.train.steps else []
    later += _of_wings(recipe, "after RL")
    if later and (recipe.sft.steps or base is not True):  # else they are the same weights
        stages.append(Evaluation("cold_start", environment))
    stages += later
    stages.append(Evaluation("trained", environment))
    if recipe.evaluation.ablations and context.components.player is None:  # whose tools are its own
        stages += [Evaluation(*variant) for variant in environment.ablations().items()]
    if recipe.evaluation.sft:
        stages.append(Imitation())
    return stages


def _of_wings(recipe: Recipe, place: str) -> list[Stage]:
    """The stages of wings that the recipe asks for at a place of the run."""
    return [loaded(kind)() for kind, at in wings().stages(recipe).values() if at == place]


def _position(recipe: Recipe, stages: list[Stage], saved: str) -> int:
    """The index of the stage at which a run goes on, given the stage of its newest checkpoint."""
    kinds: dict[str, type] = {
        checkpoint.COLD_START: ColdStart,
        checkpoint.REINFORCEMENT: Reinforcement,
        **{name: loaded(kind) for name, (kind, _) in wings().stages(recipe).items()},
    }
    return next(at for at, stage in enumerate(stages) if isinstance(stage, kinds[saved]))


def _warn(context: RunContext) -> None:
    """Say what a user should know before the run begins."""
    context.display.say(computes_text(context.components))
    of_algorithm = warnings_of(context.recipe, context.algorithm, context.tasks)
    environment = context.components.environment
    of_data = (*environment.task_set.warnings, *environment.warnings)
    for warning in (*of_data, *of_algorithm):
        context.display.say(f"warning: {warning}")
    shared = shared_tasks(context.tasks, context.heldout)
    if shared and not environment.same_splits:
        context.display.say(
            f"warning: {shared} of {len(context.heldout)} held-out tasks are training tasks too"
        )
    if len(context.heldout) < context.recipe.evaluation.tasks:
        context.display.say(f"warning: there are only {len(context.heldout)} held-out tasks")


async def _check_parity(context: RunContext) -> None:
    """See that what will be sampled is what is trained, where anything is sampled at all; write
    down what was checked."""
    found = None
    if context.recipe.train.steps or context.recipe.policy_updates or context.heldout:
        found = await context.components.check()
        await context.components.engine.sleep()  # the first stage may learn, and need its memory
    write_before_run(context, found)


def _stages(recipe: Recipe) -> str:
    """Say what a recipe trains with, in order."""
    train = recipe.train
    step = f"{train.tasks_per_step} tasks, {train.group_size} episodes of each"
    of_wings = [(at, getattr(recipe, name)) for name, (_, at) in wings().stages(recipe).items()]
    stages = [
        *(section.trains for at, section in of_wings if at == "first"),
        f"cold start, {recipe.sft.steps} steps" if recipe.sft.steps else "",
        f"{recipe.algorithm.name}, {train.steps} steps ({step})" if train.steps else "",
        *(section.trains for at, section in of_wings if at == "after RL"),
    ]
    return "; ".join(filter(None, stages)) or "nothing was trained"


def _write_report(context: RunContext) -> dict[str, Any]:
    environment, folder = context.components.environment, context.folder
    model = f"{model_text(context.components)}; {computes_text(context.components)}"
    evaluations = folder.evaluations()
    before = [name for name in POLICIES if name in evaluations and name != "trained"]
    comparisons = compare_within(folder, before, "trained") if "trained" in evaluations else []
    return write_report(
        folder,
        context.recipe,
        environment,
        context.heldout,
        evaluations,
        comparisons,
        context.seconds,
        f"{model}; each evaluation has the weights of its moment: {_stages(context.recipe)}",
    )
