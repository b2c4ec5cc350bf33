"""A policy evaluated under worse conditions, against itself as it was trained: on the same tasks,
with the same seeds.

Not here: how tools fail (`environments/failing.py`).
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from turnwise import event_loop
from turnwise.config import Recipe
from turnwise.environments.failing import FailureRates, failing
from turnwise.errors import ConfigError
from turnwise.evaluation.paired import Played, compare, corrected
from turnwise.evaluation.recovery import recovery
from turnwise.forward.images import reader_of
from turnwise.monitor.display import Display
from turnwise.scaffolds.registry import make_scaffold
from turnwise.training.components import Components, build_components
from turnwise.training.start import newest_checkpoint, played_parts

AS_TRAINED = "as_trained"
FAILURES = "tool_failures"
WITHOUT = "without_instructions"


def evaluate_robustness(
    recipe: Recipe,
    run: Path | None,
    display: Display,
    rates: FailureRates | None,
    instructions: bool,
) -> dict[str, Any]:
    """Evaluate a recipe's policy, or the newest weights of a run, as it was trained (`as_trained`),
    with tools that fail at these rates (`tool_failures`, with what the agent makes of it:
    `recovery`), and, unless `instructions` stay, without those of the scaffold
    (`without_instructions`).

    Returns the summaries by these names, and `comparisons` of the others with the first. Threads
    are for the caller to set.
    """
    saved = None if run is None else newest_checkpoint(run, display)
    parts = build_components(recipe, None if saved is None else saved.folder)
    step = 0 if saved is None else saved.step

    async def work() -> dict[str, Any]:
        try:
            await parts.check()
            summaries: dict[str, Any] = {}
            played: list[Played] = []
            for name, arm in _arms(parts, rates, instructions):
                episodes, summary = await played_parts(arm, display, name.replace("_", " "), step)
                if name == FAILURES:
                    summary["recovery"] = recovery(episodes)
                summaries[name] = summary
                played.append(Played.of(name, parts.environment.spec.data_hash, episodes))
            display.close()
            comparisons = corrected([compare(played[0], other) for other in played[1:]])
            return summaries | {"comparisons": [asdict(one) for one in comparisons]}
        finally:
            await parts.engine.stop()

    return event_loop.run(work())


def _arms(
    parts: Components, rates: FailureRates | None, instructions: bool
) -> Iterator[tuple[str, Components]]:
    yield AS_TRAINED, parts
    if rates is not None:
        yield FAILURES, replace(parts, environment=failing(parts.environment, rates))
    if not instructions:
        yield WITHOUT, _without_instructions(parts)


def _without_instructions(parts: Components) -> Components:
    """The parts with a scaffold whose instructions are empty. Raises ConfigError where they are
    already."""
    config = parts.recipe.scaffold
    if config.options.get("instructions") == "":
        raise ConfigError("the scaffold has no instructions that could be left out")
    bare = config.model_copy(update={"options": {**config.options, "instructions": ""}})
    reader = reader_of(parts.model)
    encode = None if reader is None else reader.tokens
    scaffold = make_scaffold(bare, parts.tokenizer, parts.environment.tools(), encode)
    return replace(parts, scaffold=scaffold)
