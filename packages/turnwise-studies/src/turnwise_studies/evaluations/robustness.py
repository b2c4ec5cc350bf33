"""A policy evaluated under worse conditions, against itself as it was trained: on the same tasks,
with the same seeds."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from turnwise import event_loop
from turnwise.config import Recipe
from turnwise.errors import ConfigError
from turnwise.evaluation.kept import Evaluated, write_evaluations
from turnwise.evaluation.paired import Comparison, Played, compare, corrected
from turnwise.evaluation.policies import checkpoint_of, played_parts, reward_step
from turnwise.evaluation.statement import model_text, weights_text
from turnwise.forward.images import reader_of
from turnwise.monitor.display import Display
from turnwise.parts.components import Components, build_components
from turnwise.rollout.runner import members_of
from turnwise.scaffolds.registry import make_scaffold
from turnwise.storage.run_folder import RunFolder
from turnwise_studies.evaluations.failing import FailureRates, failing, recovery

AS_TRAINED = "as_trained"
FAILURES = "tool_failures"
WITHOUT = "without_instructions"


def evaluate_robustness(
    recipe: Recipe,
    trained: Path | None,
    display: Display,
    rates: FailureRates | None,
    instructions: bool,
    out: RunFolder | None = None,
) -> dict[str, Any]:
    """Evaluate a policy as it was trained (`as_trained`), with tools that fail at these rates
    (`tool_failures`, with `recovery`), and, unless `instructions` stay, without those of the
    scaffold (`without_instructions`).

    Returns the summaries by these names, and `comparisons` with the first; all is kept in `out`.
    """
    saved = None if trained is None else checkpoint_of(trained, display)
    weights = None if saved is None else saved.folder
    parts = build_components(recipe, weights)
    step = 0 if saved is None else reward_step(recipe, saved)

    async def work() -> dict[str, Any]:
        try:
            arms = list(_arms(parts, rates, instructions))  # what is wrong is said before playing
            await parts.check()
            found: dict[str, Evaluated] = {}
            for name, arm in arms:
                found[name] = await played_parts(arm, display, name.replace("_", " "), step)
            display.close()
            comparisons = _compared(found, parts.environment.spec.data_hash)
            if FAILURES in found:
                groups, summary = found[FAILURES]
                measured = dict(summary) | {"recovery": recovery(members_of(groups))}
                found[FAILURES] = Evaluated(groups, measured)
            if out is not None:
                policy = f"{model_text(parts)}; {weights_text(weights)}"
                given = recipe, parts.environment, found, policy, parts.tokenizer
                write_evaluations(out, *given, step, comparisons)
            summaries = {name: dict(one.summary) for name, one in found.items()}
            return summaries | {"comparisons": [asdict(one) for one in comparisons]}
        finally:
            await parts.stop()

    return event_loop.run(work())


def _compared(found: Mapping[str, Evaluated], data: str) -> list[Comparison]:
    played = [Played.of(name, data, members_of(one.groups)) for name, one in found.items()]
    return corrected([compare(played[0], other) for other in played[1:]])


def _arms(
    parts: Components, rates: FailureRates | None, instructions: bool
) -> Iterator[tuple[str, Components]]:
    yield AS_TRAINED, parts
    if rates is not None:
        yield FAILURES, replace(parts, environment=failing(parts.environment, rates))
    if not instructions:
        yield WITHOUT, _without_instructions(parts)


def _without_instructions(parts: Components) -> Components:
    """Raises ConfigError where the scaffold has no instructions already."""
    config = parts.recipe.scaffold
    if config.options.get("instructions") == "":
        raise ConfigError("the scaffold has no instructions that could be left out")
    bare = config.model_copy(update={"options": {**config.options, "instructions": ""}})
    reader = reader_of(parts.model)
    encode = None if reader is None else reader.tokens
    scaffold = make_scaffold(bare, parts.tokenizer, parts.environment.tools(), encode)
    return replace(parts, scaffold=scaffold)
