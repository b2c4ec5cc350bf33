"""Everything that the command line can do and more, as functions: for scripts and notebooks.

They may be called where an event loop runs already, as it does in a notebook. `turnwise` offers all
of them by name (`turnwise.train`); docs/reference/api.md lists them, examples/rl_loop.py puts them
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise import config, event_loop
from turnwise.config import Recipe, check_recipe
from turnwise.environments import registry
from turnwise.errors import ConfigError
from turnwise.evaluation.policies import evaluate_parts, evaluate_recipe, run_of
from turnwise.parts.first_checks import configure
from turnwise.training.start import prepared

if TYPE_CHECKING:
    from turnwise.environments.base import Environment
    from turnwise.learning.credits import Credits
    from turnwise.learning.policy import PolicyLearner
    from turnwise.monitor.display import Display
    from turnwise.parts.components import Components
    from turnwise.storage.run import Run
    from turnwise.storage.run_folder import RunFolder
    from turnwise.types import Group, Task


def load_recipe(
    recipe: str | Path | Mapping[str, Any] | Recipe, *overrides: str | Mapping[str, Any]
) -> Recipe:
    """Read a recipe: a TOML file, the name of a shipped one, or nested tables as a mapping.

    Overrides are texts as on the command line, or mappings of dotted keys to values; a table given
    as a value takes the place of the whole table. Raises ConfigError, in one line, for what is
    wrong with any of them.

    >>> turnwise.load_recipe("demo", "train.steps=5", {"algorithm.name": "rloo"}).train.steps
    5
    """
    source = str(recipe) if isinstance(recipe, str | Path) else "recipe"
    if isinstance(recipe, Recipe):
        values = recipe.model_dump(exclude_none=True)
    elif isinstance(recipe, Mapping):
        values = config.changed({}, deepcopy(dict(recipe)).items())
    else:
        values = config.read_recipe(source)
    changes: list[tuple[str, Any]] = []
    for override in overrides:
        if isinstance(override, str):
            changes.append(config.parse_override(override))
        else:
            changes += deepcopy(dict(override)).items()
    return check_recipe(config.changed(values, changes), source)


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *overrides: str | Mapping[str, Any],
    run: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Train as `turnwise train` does, into the folder `run`; returns the report.

    The folder is runs/<the recipe's name> if not given. Raises ConfigError for a recipe that cannot
    work, DataError for a folder that holds a run which is not to be overwritten. Ctrl-C saves, and
    `resume` goes on.

    >>> report = turnwise.train(recipe, "train.steps=1", run=path, overwrite=True)
    >>> report["trained"]["n"]
    2
    """
    from turnwise.storage.run_folder import RunFolder

    loaded = load_recipe(recipe, *overrides)
    folder = RunFolder.new(Path(run or Path("runs") / loaded.name), overwrite)
    return _run(loaded, folder, progress)


def resume(run: str | Path, *, progress: bool = True) -> dict[str, Any]:
    """Go on with a run that was stopped, from its newest checkpoint; returns the report.

    Raises DataError where the folder holds no run.

    >>> turnwise.resume(path) == turnwise.open_run(path).report()
    True
    """
    from turnwise.storage.run_folder import RunFolder

    folder = RunFolder.open(Path(run))
    return _run(folder.recipe(), folder, progress)


def evaluate(
    policy: str | Path | Mapping[str, Any] | Recipe | Components,
    *overrides: str | Mapping[str, Any],
    out: str | Path | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate on held-out tasks: success with its 95% interval, mean reward, counts of outcomes.

    The policy is that of a run's folder (its newest weights), of one of its checkpoints, of a
    recipe, or of components, with the weights that their engine has; overrides are of the recipe,
    so components take none. With a folder `out`, which has to be empty, episodes and report are
    kept there, as in a run's (`turnwise.open_run(out)`).

    >>> summary = turnwise.evaluate(recipe, "evaluation.tasks=2")
    >>> summary["low"] <= summary["success"] <= summary["high"]
    True
    """
    from turnwise.storage.run_folder import RunFolder

    display = _display(progress)
    folder = None if out is None else RunFolder.for_evaluation(Path(out))
    if not isinstance(policy, str | Path | Mapping | Recipe):
        if overrides:
            raise ConfigError("components are evaluated by their own recipe: give no overrides")
        return event_loop.finish(evaluate_parts(policy, display, out=folder))
    run = run_of(Path(policy)) if isinstance(policy, str | Path) else None
    if run is None or not isinstance(policy, str | Path):
        return evaluate_recipe(load_recipe(policy, *overrides), None, display, folder)
    recipe = load_recipe(run / "config.toml", *overrides)
    return evaluate_recipe(recipe, Path(policy), display, folder)


def make_environment(name: str, /, **options: Any) -> Environment:
    """Make an environment: a built-in name, `path/to/file.py:Class`, or `package.module:Class`.

    Options are arguments of its constructor. Raises ConfigError for a name or an option that there
    is not.

    >>> search = turnwise.make_environment("search")
    >>> len(search.tasks("train")) > 0
    True
    """
    return registry.make_environment(name, options)


def build(
    recipe: str | Path | Mapping[str, Any] | Recipe, *overrides: str | Mapping[str, Any]
) -> Components:
    """Build the parts that a recipe names: environment, model, tokenizer, scaffold and engine.

    The engine is compared with the model's own forward pass and has its weights, as version 0; end
    with `close`. The recipe's `threads` are set for the whole process. Raises ConfigError or
    DataError for what cannot work, NotSupportedError for a model that would be computed wrongly.

    >>> components = turnwise.build(recipe)
    >>> components.engine.version
    0
    """
    loaded = load_recipe(recipe, *overrides)
    configure(loaded)
    from turnwise.parts.components import build_components

    components = build_components(loaded)
    event_loop.finish(components.check())
    return components


def close(components: Components) -> None:
    """End what the engine does in the background: threads, servers. May be called again.

    >>> turnwise.close(components)
    """
    event_loop.finish(components.stop())


def sample_groups(
    components: Components,
    tasks: Sequence[Task] | None = None,
    *,
    group_size: int | None = None,
    step: int = 0,
) -> list[Group]:
    """Play each task `group_size` times with the engine's weights, as the algorithm's rollout does.

    Tasks and group size are those of the recipe's RL step, counted from 0, if not given; recipe,
    step and task determine every random number. Raises RunStoppedError where more than
    `rollout.max_ungraded_share` of the episodes have no grade.

    >>> groups = turnwise.sample_groups(components, group_size=4, step=3)
    >>> [len(group.trajectories) for group in groups]
    [4, 4]
    """
    from turnwise.algorithms.registry import make_algorithm
    from turnwise.rollout.order import tasks_of_step

    recipe, train = components.recipe, components.recipe.train
    if tasks is None:
        every = components.environment.tasks("train")
        tasks = tasks_of_step(every, step, train.tasks_per_step, recipe.seed)
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    runner = components.runner(recipe.rollout, step=step)
    size = group_size or train.group_size
    groups: list[Group] = event_loop.finish(
        algorithm.call("rollout", runner, tasks, size, recipe.seed, f"train/{step}")
    )
    return event_loop.finish(runner.judge(groups))


def make_learner(components: Components) -> PolicyLearner:
    """The learner of the components' model, by the recipe's algorithm and table `learning`.

    The reference of a KL term is the model that the recipe names. Raises ConfigError where recipe
    and algorithm do not go together, and for an algorithm with a second model that learns or
    teaches (a critic, for example), which `train` alone can do.

    >>> learner = turnwise.make_learner(components)
    """
    from turnwise.training.single import learner_of

    return learner_of(components)


def estimate(components: Components, learner: PolicyLearner, groups: Sequence[Group]) -> Credits:
    """Estimate the advantage of every token of the graded trajectories, by the learner's algorithm.

    `advantages` of what is returned has float32[tokens] by `trajectory.id`, 0 where nothing was
    sampled. What the algorithm asks of the policy itself is measured before.

    >>> credits = turnwise.estimate(components, learner, groups)
    >>> credits.advantages[groups[0].trajectories[0].id].dtype
    dtype('float32')
    """
    from turnwise.training.single import credits_of

    return credits_of(components, learner, groups)


def load_weights(components: Components, version: int) -> None:
    """Let the engine sample with the model's present weights, and call them `version` from now on.

    >>> report = learner.update(groups, turnwise.estimate(components, learner, groups))
    >>> turnwise.load_weights(components, version=1)
    """
    event_loop.finish(components.load(version))


def open_run(path: str | Path) -> Run:
    """Open a run's folder for reading, be it finished or under way.

    Raises DataError where the folder holds no run.

    >>> run = turnwise.open_run(path)
    >>> run.metrics().num_rows, run.trajectories(step=1)["reward"].null_count
    (1, 0)
    """
    from turnwise.storage.run import Run

    return Run(path)


def _run(recipe: Recipe, folder: RunFolder, progress: bool) -> dict[str, Any]:
    with prepared(recipe, folder, _display(progress)) as context:
        from turnwise.training.run import run

        return event_loop.run(run(context))


def _display(progress: bool) -> Display:
    from turnwise.monitor.display import Console, SilentDisplay, TerminalDisplay

    return TerminalDisplay(Console(stderr=True)) if progress else SilentDisplay()
