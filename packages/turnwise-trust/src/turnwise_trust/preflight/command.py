"""The command `preflight`."""

import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.commands.evaluating import AsJson, Overrides
from turnwise.commands.printing import terminal_display

if TYPE_CHECKING:
    from turnwise.config import Recipe
    from turnwise.monitor.display import Display
    from turnwise_trust.page import Page
    from turnwise_trust.preflight.rehearsal import Wave

REST, SHARE, LAST = 85.0, 0.9, 60.0
"""Seconds for all but the policy's episodes, at least, and as a share of theirs: three minutes in
all by default. LAST of them are for scripts and an update, where loading took the others."""


def preflight(
    recipe: Annotated[str, typer.Argument(help="A recipe, or a run's folder: its newest weights.")],
    overrides: Overrides = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="For the policy's episodes; the rest has 85, or as many.")
    ] = 90,
    groups: Annotated[int, typer.Option(min=1, help="Most groups to play.")] = 128,
    effect: Annotated[
        float, typer.Option(min=0.1, max=50, help="Points that evaluations are to show.")
    ] = 5,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep the episodes in this folder; a preflight that it holds goes on."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the page, as Markdown.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say from episodes of the untrained policy whether RL is what it needs, and what it costs.
    The exit code is 0 where it is."""
    from turnwise.api import load_recipe
    from turnwise.evaluation.policies import run_of
    from turnwise_trust.preflight.decision import GO

    run = run_of(Path(recipe))
    loaded = load_recipe(recipe if run is None else run / "config.toml", *(overrides or []))
    display = terminal_display()
    policy = None if run is None else Path(recipe)
    with redirect_stdout(sys.stderr):  # what the environment prints is not the page
        found = examined(loaded, policy, display, seconds, groups, effect, keep)
    found.tell(page, as_json)
    if not found.verdict.startswith(tuple(f"{one}:" for one in GO)):
        raise typer.Exit(1)


def examined(
    recipe: "Recipe",
    policy: Path | None,
    display: "Display",
    seconds: float,
    most: int,
    effect: float,
    keep: Path | None = None,
) -> "Page":
    """Play, measure and decide. `policy` is a run's folder or a checkpoint; `effect` in points;
    `keep` the folder of a preflight that goes on. Raises ConfigError or DataError for a recipe
    that cannot work or has no tasks."""
    from turnwise import event_loop
    from turnwise.errors import ConfigError, DataError
    from turnwise.evaluation.policies import checkpoint_of
    from turnwise.models.places import check_model
    from turnwise.parts.first_checks import known_of
    from turnwise.threads import configure_threads, set_variables

    end = time.monotonic() + seconds + max(REST, SHARE * seconds)
    set_variables()
    recipe.check_tokens()
    known = known_of(recipe)
    train, heldout = known.environment.tasks("train"), known.environment.tasks("heldout")
    if not train:
        raise DataError(f"environment {recipe.environment.name} has no train tasks")
    check_model(recipe.model, recipe.rollout.max_tokens)
    configure_threads(recipe.threads)
    from turnwise.parts.components import build_components
    from turnwise.parts.resources import resources_of
    from turnwise.rollout.order import RolloutSchedule
    from turnwise_trust.preflight import keeping
    from turnwise_trust.preflight.bounding import TimeUp, within
    from turnwise_trust.preflight.rehearsal import SCRIPTED_SECONDS, play, rehearsal
    from turnwise_trust.preflight.report import page_of
    from turnwise_trust.preflight.updating import measure_update

    alone = {name: one.for_evaluation(policy is not None) for name, one in recipe.added().items()}
    weights = None if policy is None else checkpoint_of(policy, display).folder
    with resources_of(recipe.model_copy(update=alone), None) as resources:
        left = end - time.monotonic()
        try:
            with within(left):
                parts = build_components(recipe, weights, None, resources, known)
        except TimeUp:
            late = f"the model was not loaded within {left:.0f} seconds: raise --seconds"
            raise ConfigError(late) from None
        limits = RolloutSchedule(recipe.rollout).limits(0)
        folder = None if keep is None else keeping.folder_of(keep, recipe, weights)
        before = [] if folder is None else keeping.kept(folder, train)
        until = f"stops after {seconds:g} s"
        runner = parts.runner(limits, progress=lambda _: display.advance(until))

        def new(wave: "Wave") -> None:
            if folder is not None:
                keeping.keep(folder, wave)

        async def work() -> "list[Wave]":
            try:
                await parts.check()
                await parts.freeze()
                done = sum(len(wave.groups) for wave in before)
                display.phase("episodes", max(most - done, 0) * recipe.train.group_size)
                left = end - time.monotonic()
                given = min(seconds, max(left - LAST, left / 2))
                late = (left - given) / 2
                return await play(recipe, runner, train, given, most, before, new, late)
            finally:
                await parts.stop()

        waves = event_loop.run(work())
        display.phase("scripts and an update", 2)
        each = min(SCRIPTED_SECONDS, (end - time.monotonic()) / 6)  # half of it for three kinds
        played = rehearsal(recipe, runner, train, heldout, waves, each)
        display.advance()
        update = measure_update(parts, played.groups, max(end - time.monotonic(), 1.0))
        display.advance()
    display.close()
    return page_of(played, update, effect / 100)
