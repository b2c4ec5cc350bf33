"""The runs of a study in their order, each with its whole recipe, checked before any begins. All
arms of a seed come before the next seed: a study that is stopped has whole seeds."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from turnwise.config import Recipe, changed, check_recipe, parse_override, read_recipe
from turnwise.config.loading import whole_recipe
from turnwise.config.section import IS_MODEL
from turnwise.errors import ConfigError, unknown_name
from turnwise.parts.first_checks import algorithm_of
from turnwise.training.reactions import check_reaction
from turnwise_studies.config import COLD_START, Settings, Study, folder_name

STAGES = ("cpt", "sft", "train", "preferences")
"""Stages that 0 `steps` leave out; each has the name of its section."""
ARM = "arm:"
"""The text before an arm's name where a recipe names a model."""
WITH_OPTIONS = ("environment", "scaffold")
"""Their options belong to the name beside them."""


@dataclass(frozen=True)
class PlannedRun:
    name: str
    """The folder's, as in `masked-0`."""
    arm: str
    """`COLD_START` for a shared cold start."""
    seed: int
    recipe: Recipe
    """The whole recipe; of an arm that begins with a cold start, without those weights."""
    after: str | None = None
    """The run whose weights, at its end, it begins with."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The runs whose weights, at their end, stand for models that it names as `arm:NAME`."""

    @property
    def needed(self) -> Sequence[str]:
        """The runs that it begins after."""
        return [*([] if self.after is None else [self.after]), *self.models.values()]


def planned_runs(study: Study, overrides: Sequence[str] = ()) -> list[PlannedRun]:
    """Raises ConfigError, in one line that names the arm, where a recipe cannot be."""
    config, changes = study.config, [parse_override(override) for override in overrides]
    if any(key == "seed" for key, _ in changes):
        raise ConfigError("override seed: seeds are those of the study's file")
    base = read_recipe(config.recipe)
    arms = {arm: _arm_recipe(study, arm, base, changes) for arm in config.arms}
    cold = None if config.cold_start is None else _cold_recipe(study, base, changes)
    if cold is not None:
        _check_bases(study, arms, cold)
    _check_models(study, arms if cold is None else {COLD_START: cold, **arms})
    return list(_in_order(study, arms, cold))


def _in_order(
    study: Study, arms: Mapping[str, Recipe], cold: Recipe | None
) -> Iterator[PlannedRun]:
    beginning = study.beginning_with_cold_start
    each = study.config.cold_start is not None and study.config.cold_start.each_seed
    for number, seed in enumerate(study.seeds):
        first = seed if each else study.seeds[0]
        shared = f"{COLD_START}-{first}"
        if cold is not None and beginning and (each or number == 0):
            seeded = cold.model_copy(update={"seed": first})
            yield PlannedRun(shared, COLD_START, first, seeded)
        for arm, recipe in arms.items():
            seeded = recipe.model_copy(update={"seed": seed})
            after = shared if arm in beginning else None
            if arm in study.config.continues:
                after = f"{folder_name(study.config.continues[arm])}-{seed}"
            models = {f"{ARM}{one}": f"{folder_name(one)}-{seed}" for one in _arms_named(recipe)}
            yield PlannedRun(f"{folder_name(arm)}-{seed}", arm, seed, seeded, after, models)


def _arm_recipe(
    study: Study, arm: str, base: Mapping[str, Any], changes: Sequence[tuple[str, Any]]
) -> Recipe:
    trained = (*study.beginning_with_cold_start, *study.config.continues)
    begun: Settings = {"sft": {"steps": 0}} if arm in trained else {}
    tables = [study.config.settings, begun, study.config.arms[arm]]
    return _recipe(study, f"arm {arm!r}", base, tables, changes)


def _cold_recipe(
    study: Study, base: Mapping[str, Any], changes: Sequence[tuple[str, Any]]
) -> Recipe:
    config = study.config
    assert config.cold_start is not None
    nothing_else: Settings = {"train": {"steps": 0}, "preferences": {"steps": 0}}
    nothing_else["evaluation"] = {"sft": False}
    tables = [config.settings, config.cold_start.settings, nothing_else]
    recipe = _recipe(study, COLD_START, base, tables, changes)
    if not recipe.sft.steps:
        raise ConfigError(f"{study.source}: {COLD_START}: it trains nothing: set sft.steps above 0")
    if recipe.model.lora_rank:
        raise ConfigError(
            f"{study.source}: {COLD_START}: it would train adapters, with which no other run can "
            "begin: set model.lora_rank = 0 in [cold_start.settings]"
        )
    return recipe


def _recipe(
    study: Study,
    name: str,
    base: Mapping[str, Any],
    tables: Sequence[Settings],
    changes: Sequence[tuple[str, Any]],
) -> Recipe:
    """The recipe after the tables, those of the smallest form, and the changes; a stage that the
    tables leave out stays out. Raises ConfigError, which names the part of the study."""
    source, values = f"{study.source}: {name}", deepcopy(dict(base))
    for table in tables:
        _forget_options(values, table)
        values = changed(values, leaves(deepcopy(table)))
    left_out = [_without(stage) for stage in _defaults() if not _steps(values, stage)]
    values = changed(values, [*leaves(deepcopy(study.topmost)), *deepcopy(changes), *left_out])
    recipe = check_recipe(values, source)
    try:
        check_reaction(recipe, algorithm_of(recipe, fresh=False))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return recipe


def _steps(values: Mapping[str, Any], stage: str) -> Any:
    """The steps of a stage, by the tables."""
    table, default = values.get(stage), getattr(_defaults()[stage], "steps", 0)
    return table.get("steps", default) if isinstance(table, Mapping) else default


def _without(stage: str) -> tuple[str, Any]:
    """The change that leaves a stage out: no steps, or no section where that asks for the stage."""
    return (stage, False) if _defaults()[stage] is None else (f"{stage}.steps", 0)


def _defaults() -> Mapping[str, Any]:
    """The sections of the stages that this installation knows, where a recipe says nothing."""
    fields = whole_recipe().model_fields
    return {stage: fields[stage].default for stage in STAGES if stage in fields}


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of nested tables and their values. A table with a dot in a name is one value."""
    for key, value in table.items():
        whole = isinstance(value, Mapping) and any("." in name for name in value)
        if isinstance(value, Mapping) and value and not whole:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _forget_options(values: dict[str, Any], table: Settings) -> None:
    for kind in WITH_OPTIONS:
        given, present = table.get(kind), values.get(kind)
        if not (isinstance(given, Mapping) and isinstance(present, dict)):
            continue
        if given.get("name", present.get("name")) != present.get("name"):
            present.pop("options", None)


def _check_bases(study: Study, arms: Mapping[str, Recipe], cold: Recipe) -> None:
    """Raise ConfigError for an arm with a base that it would not begin with."""
    for arm in study.beginning_with_cold_start:
        base = arms[arm].model.name
        if base != cold.model.name:
            raise ConfigError(
                f"{study.source}: arm {arm!r} has the base {base}, but begins with the weights of "
                f"the cold start, whose base is {cold.model.name}: leave out one model.name, or "
                "leave the arm out of cold_start.arms"
            )


def _arms_named(recipe: Recipe) -> Sequence[str]:
    """The arms that a recipe names as models."""
    found: list[str] = []

    def noted(name: str) -> str:
        if name.startswith(ARM):
            found.append(name.removeprefix(ARM))
        return name

    recipe.with_texts(IS_MODEL, noted)
    return found


def _check_models(study: Study, recipes: Mapping[str, Recipe]) -> None:
    """Raise ConfigError for a model of an arm that is not there, or not written before."""
    before: list[str] = []
    for arm, recipe in recipes.items():
        where = f"{study.source}: arm {arm!r}: model {ARM}"
        for named in _arms_named(recipe):
            if named not in study.config.arms:
                error = unknown_name("arm", named, study.config.arms)
                raise ConfigError(f"{where}{named}: {error}")
            if named not in before:
                raise ConfigError(f"{where}{named} is not trained by then: write that arm before")
        before.append(arm)
