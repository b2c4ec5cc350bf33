"""All figures of a study, as data that pages are made of. Reads finished runs alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigError, unknown_name
from turnwise.evaluation.kept import played_in
from turnwise.evaluation.paired import Played
from turnwise.monitor.metrics import meanings
from turnwise.storage.run_folder import RunFolder
from turnwise_studies.config import EffectConfig, MetricConfig, Study
from turnwise_studies.results.effects import (
    EVERYWHERE,
    ByTask,
    Effect,
    Mean,
    corrected,
    differences,
    mean_difference,
    mean_over_seeds,
    mean_ratio,
    paired_by_task,
    verdict_on,
)
from turnwise_studies.results.measures import SUCCESS, Measured, measure

Folders = Mapping[str, Mapping[int, Path]]
"""Run folders by arm and seed."""


@dataclass(frozen=True)
class OfArm:
    by_seed: dict[str, Measured]
    over_seeds: Mean | None
    """None where a run lacks the number."""


@dataclass(frozen=True)
class Figures:
    name: str
    title: str
    about: str
    source: str
    smallest: bool
    command: str
    seeds: list[int]
    rates: list[str]
    """Metrics that are shares of successes."""
    arms: dict[str, dict[str, OfArm]]
    """Numbers by arm and metric."""
    effects: list[Effect]
    minutes: float
    """All runs together, those of cold starts too."""
    machines: list[str]
    commits: list[str]
    measured: str
    """The last run's day, in UTC."""


def figures(study: Study, command: str, folders: Folders, others: Sequence[Path]) -> Figures:
    """Measure the finished runs of all arms; `others` are runs that arms began with. Raises
    ConfigError for a metric that no run has, nor could have."""
    config = study.config
    arms = {
        arm: {name: _of_arm(name, metric, by_seed) for name, metric in config.metrics.items()}
        for arm, by_seed in folders.items()
    }
    for name, metric in config.metrics.items():
        _check_measured(name, metric, [of[name] for of in arms.values()], folders)
    every = [*others, *(path for by_seed in folders.values() for path in by_seed.values())]
    reports = [RunFolder.open(path).report() for path in every]
    last = max((path / "report.json").stat().st_mtime for path in every)
    return Figures(
        name=config.name,
        title=config.title or config.name,
        about=config.about,
        source=config.source,
        smallest=study.smallest,
        command=command,
        seeds=list(study.seeds),
        rates=[name for name, metric in config.metrics.items() if metric.is_rate],
        arms=arms,
        effects=_effects(study, arms, folders),
        minutes=sum(report["seconds"] for report in reports) / 60,
        machines=sorted({report["statement"]["machine"] for report in reports}),
        commits=sorted({report["commit"] for report in reports}),
        measured=datetime.fromtimestamp(last, UTC).date().isoformat(),
    )


def _of_arm(name: str, metric: MetricConfig, by_seed: Mapping[int, Path]) -> OfArm:
    found = {str(seed): measure(name, metric, path) for seed, path in by_seed.items()}
    values = [one.value for one in found.values() if one.value is not None]
    within = (0.0, 1.0) if metric.is_rate else EVERYWHERE
    return OfArm(found, mean_over_seeds(values, within) if len(values) == len(found) else None)


def _effects(
    study: Study, arms: Mapping[str, Mapping[str, OfArm]], folders: Folders
) -> list[Effect]:
    found, means = [], []
    for effect in study.config.effects:
        rate, pair = study.config.metrics[effect.metric].is_rate, _both(effect, arms)
        means.append(mean_difference(*pair, (-1.0, 1.0) if rate else EVERYWHERE))
    claims = zip(study.config.effects, means, corrected(means), strict=True)
    for effect, mean, p in claims:
        rate, pair = study.config.metrics[effect.metric].is_rate, _both(effect, arms)
        by_seed, by_task = differences(*pair), _by_task(study, effect, folders)
        verdict, why = verdict_on(effect.direction, mean, by_task, p, len(by_seed))
        found.append(
            Effect(
                **effect.model_dump(),
                by_seed=by_seed,
                over_seeds=mean,
                ratio=None if rate else mean_ratio(*pair),
                by_task=by_task,
                p_corrected=p,
                verdict=verdict,
                why=why,
            )
        )
    return found


def _both(
    effect: EffectConfig, arms: Mapping[str, Mapping[str, OfArm]]
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Numbers by seed, of the arm and of the other one."""
    one, other = (
        {seed: one.value for seed, one in arms[name][effect.metric].by_seed.items()}
        for name in (effect.arm, effect.against)
    )
    return one, other


def _by_task(study: Study, effect: EffectConfig, folders: Folders) -> ByTask | None:
    evaluation, _, leaf = study.config.metrics[effect.metric].report.partition(".")
    if leaf != SUCCESS:
        return None
    pairs: list[tuple[Played, Played]] = []
    for seed in study.seeds:
        both = [RunFolder.open(folders[arm][seed]) for arm in (effect.against, effect.arm)]
        if any(folder.evaluation(evaluation) is None for folder in both):
            return None
        first, second = (played_in(folder, evaluation, folder.path.name) for folder in both)
        pairs.append((first, second))
    return paired_by_task(pairs)


def _check_measured(
    name: str, metric: MetricConfig, found: Sequence[OfArm], folders: Folders
) -> None:
    """Raise ConfigError where no run has what a metric is read from."""
    runs = [RunFolder.open(path) for by_seed in folders.values() for path in by_seed.values()]
    if metric.report and all(one.value is None for of in found for one in of.by_seed.values()):
        known = {path for run in runs for path in _numbers(run.report())}
        near = unknown_name("number", metric.report, known)
        raise ConfigError(f"metric {name!r}: no run has it: {near}")
    if metric.series:
        logs = ("metrics.jsonl", "timing.jsonl")
        known = {key for run in runs for log in logs for line in run.lines(log) for key in line}
        if metric.series not in known | meanings().keys():  # runs that never updated lack some
            near = unknown_name("number", metric.series, known)
            raise ConfigError(f"metric {name!r}: no run has it: {near}")


def _numbers(value: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _numbers(entry, f"{prefix}{key}.")
    elif isinstance(value, int | float):
        yield prefix[:-1]
