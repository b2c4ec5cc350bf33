"""A study: one recipe in several arms, over several seeds, and the effect that is claimed. Settings
are nested tables as in a recipe; a path in them is relative to the study's file."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.config.loading import check_section, read_toml
from turnwise.config.paths import anchored
from turnwise.config.section import Section
from turnwise.errors import ConfigError, unknown_name
from turnwise.wings import wings

COLD_START = "cold_start"
"""Its name among the folders of arms."""
Settings = dict[str, Any]


class MetricConfig(Section):
    """A number of each run, from one of three places: `report`, `series` or `function`."""

    report: str = ""
    """A number of report.json by its dotted path, as in `trained.breakdown.hops.two.success`."""
    series: str = ""
    """A series of metrics.jsonl or timing.jsonl, as in `rollout/tool_calls` and `seconds/step`: its
    mean over the last 5 steps."""
    until: float | None = None
    """With `series`: what it costs until the mean of 5 steps is so high, counted by `count`."""
    count: Literal["steps", "tokens"] = "steps"
    """With `until`: RL steps, or sampled tokens."""
    function: str = ""
    """`path/to/file.py:function`, from the Path of a run's folder to a number, or None."""

    @model_validator(mode="after")
    def _has_one_place(self) -> "MetricConfig":
        given = [name for name in ("report", "series", "function") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("a metric has one of report, series and function")
        if self.until is not None and not self.series:
            raise ValueError("until goes with series: it is a level that a series reaches")
        return self

    @property
    def is_rate(self) -> bool:
        """Whether it is a share of successes, which is shown in percent."""
        return self.until is None and re.split(r"[./]", self.report or self.series)[-1] == "success"


class EffectConfig(Section):
    """A claim: in which metric one arm is above, or below, another one."""

    metric: str
    arm: str
    against: str
    direction: Literal["higher", "lower"] = "higher"
    """Where the claim says that `arm` is."""
    claim: str = ""
    """The claim as a sentence."""
    published: str = ""
    """The published figures, as text."""
    source: str = ""
    """The place of these figures, such as a paper's table."""


class ColdStartConfig(Section):
    """A cold start that arms have in common: they begin with its weights."""

    each_seed: bool = False
    """One for each seed; else one, with the first seed, for all of them."""
    arms: list[str] | None = None
    """The arms that begin with it; all if not given. The others train their own base."""
    settings: Settings = Field(default_factory=dict)


class SmallestConfig(Section):
    """The form in which a study is seen to work within two minutes, and that shows nothing else."""

    seeds: list[int] = Field(min_length=1)
    settings: Settings = Field(default_factory=dict)
    """On top of all others."""


class StudyConfig(Section):
    """A whole study. `turnwise study FILE key=value` changes a recipe's key in all runs."""

    name: str = Field(pattern=r"^[\w-]+$")
    """The name of its folder and of its page."""
    title: str = ""
    """The page's heading; the name if not given."""
    about: str = ""
    """The page's first paragraph: which system this is, and what differs here."""
    source: str = ""
    """Where the system was published."""
    recipe: str
    """The base: a recipe that comes with turnwise, or a path."""
    seeds: list[int] = Field(min_length=1)
    settings: Settings = Field(default_factory=dict)
    """Changes to the base in all runs."""
    cold_start: ColdStartConfig | None = None
    """Without it every arm is a whole run of its own."""
    arms: dict[str, Settings] = Field(min_length=1)
    """Changes by which an arm differs from the others."""
    continues: dict[str, str] = Field(default_factory=dict)
    """Arms that begin with the weights with which another one, written before, has ended."""
    metrics: dict[str, MetricConfig] = Field(min_length=1)
    effects: list[EffectConfig] = Field(default_factory=list)
    curves: list[str] = ["rollout/success"]
    """Series of metrics.jsonl that are drawn, a panel each; none for a study without RL."""
    smallest: SmallestConfig | None = None

    @model_validator(mode="after")
    def _names_go_together(self) -> "StudyConfig":
        for sentence in _contradictions(self):
            raise ValueError(sentence)
        return self


@dataclass(frozen=True)
class Study:
    config: StudyConfig
    source: str
    """The name or path that was asked for."""
    file: Path
    smallest: bool
    """Shows nothing but that it works."""

    @property
    def seeds(self) -> list[int]:
        small = self.config.smallest
        return small.seeds if self.smallest and small else self.config.seeds

    @property
    def topmost(self) -> Settings:
        """On top of all others in the file."""
        small = self.config.smallest
        return small.settings if self.smallest and small else {}

    @property
    def beginning_with_cold_start(self) -> list[str]:
        cold = self.config.cold_start
        if cold is None:
            return []
        arms = self.config.arms if cold.arms is None else cold.arms
        return [arm for arm in arms if arm not in self.config.continues]


def load_study(source: str, smallest: bool = False) -> Study:
    """Read a study: a path to a TOML file, or the name of one that comes with turnwise. Raises
    ConfigError, in one line, for what is wrong in it but its recipes."""
    file, values = read_toml("study", source, shipped_studies())
    for number, effect in enumerate(values.get("effects") or (), 1):
        if isinstance(effect, Mapping):
            check_section(EffectConfig, effect, f"{source}: effect {number}")
    config = check_section(StudyConfig, anchored(values, file.parent), source)
    if smallest and config.smallest is None:
        raise ConfigError(f"{source} has no [smallest]: leave --smallest out, or write one")
    return Study(config, source, file, smallest)


def shipped_studies() -> dict[str, Path]:
    return dict(wings().files("study"))


def folder_name(arm: str) -> str:
    """The name of an arm as a folder's. Example: folder_name("igpo, gain") is "igpo_gain"."""
    return re.sub(r"[^\w.+-]+", "_", arm).strip("_.")


def _contradictions(config: StudyConfig) -> Iterator[str]:
    small, cold = config.smallest, config.cold_start
    seeds_of = {"seeds": config.seeds} | ({} if small is None else {"smallest.seeds": small.seeds})
    for name, seeds in seeds_of.items():
        for seed in [seed for seed, count in Counter(seeds).items() if count > 1]:
            yield f"{name} has {seed} twice: give each seed once"
        if min(seeds) < 0:
            yield f"{name} has {min(seeds)}: give seeds of 0 and above"
    folders: dict[str, str] = {} if cold is None else {COLD_START: "the cold start"}
    for arm in config.arms:
        folder = folder_name(arm).casefold()
        if not folder:
            yield f"arm {arm!r} gives no name of a folder: use letters or digits"
        if folder in folders:
            both = f"arm {arm!r} and {folders[folder]}"
            yield f"{both} would have one folder, {folder}: rename the arm"
        folders[folder] = f"arm {arm!r}"
    tables = {"settings": config.settings}
    tables |= {f"arm {arm!r}": settings for arm, settings in config.arms.items()}
    if cold is not None:
        tables["cold_start.settings"] = cold.settings
        for arm in cold.arms or ():
            if arm not in config.arms:
                yield f"cold_start.arms: {unknown_name('arm', arm, config.arms)}"
    written = list(config.arms)
    for pair in config.continues.items():
        for arm in set(pair) - set(written):
            yield f"continues: {unknown_name('arm', arm, config.arms)}"
        if set(pair) <= set(written) and written.index(pair[1]) >= written.index(pair[0]):
            yield f"continues: {pair[0]!r} comes after {pair[1]!r}: write that arm before"
    if small is not None:
        tables["smallest.settings"] = small.settings
    for name, settings in tables.items():
        if "seed" in settings:
            yield f"{name} has a seed: seeds are those of the study"
    for number, effect in enumerate(config.effects, 1):
        where = f"effect {number}"
        for arm in (effect.arm, effect.against):
            if arm not in config.arms:
                yield f"{where}: {unknown_name('arm', arm, config.arms)}"
        if effect.metric not in config.metrics:
            yield f"{where}: {unknown_name('metric', effect.metric, config.metrics)}"
        if effect.arm == effect.against:
            yield f"{where}: it compares {effect.arm!r} with itself"
