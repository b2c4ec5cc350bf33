"""Wings: packages that add to turnwise, found by the entry points `turnwise.wings`.

    [project.entry-points."turnwise.wings"]
    view = "turnwise_view.wing:WING"

The core imports no wing by its name; it asks here for what is installed. A wing that cannot be
used is left out, with a sentence that says why, and all else works. For a single part that a recipe
names an entry point of its kind is enough (`registry.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any, Literal, get_args

from packaging.requirements import Requirement

from turnwise.conflicts import Claim
from turnwise.errors import ConfigError, MissingExtraError, located

GROUP = "turnwise.wings"
OWN: dict[str, dict[str, str]] = {
    "algorithms": {
        "algorithm": (
            "arpo arpo_soft counterfactual distillation fresh_replay gigpo hca hcapo hero igpo ipo "
            "kpop mipu mt_grpo otb paw prime remax score_centering sdpo tree_grpo"
        ),
        "estimator": (
            "arpo arpo_soft counterfactual distillation gigpo hca hcapo information_gain mt_grpo "
            "otb process_rloo remax tree_grpo"
        ),
        "extension": "acceptance fresh_replay world_model",
        "objective": "centred ipo kpop",
        "rollout": "entropy_branches greedy random_branches turn_replays",
        "signal": (
            "acceptance feedback_teacher hindsight information_gain process_rewards replay "
            "sampler score_norms self_teacher teacher world_model"
        ),
    },
    "cluster": {"section": "cluster"},
    "environments": {
        "command": "environments inject play rewards serve-environment",
        "environment": (
            "attempts bandit code deep_research desk doors frozen_lake function_calling gymnasium "
            "harbor inspect joint long_walk mathematics multi_tool openapi openenv own_desk "
            "proofs reasoning_gym recorded_calls repair shell shop shop_web sokoban sql textworld "
            "verifiers village web_forms"
        ),
        "recipe": (
            "bandit desk frozen_lake function_calling long_walk mathematics multi_tool smollm2 "
            "sokoban sql sums"
        ),
        "reward": (
            "budget calls cited clusters confidence exact_match f1 format length majority "
            "malformed mathematics needless_calls proof repetition search_r1 shaping tool_star "
            "toolrl_calls toolrl_format"
        ),
        "scaffold": "code native react renderers",
        "tool": "calculate",
        "index": "embedding",
    },
    "gateway": {"command": "agent", "evaluation": "endpoint", "section": "agent"},
    "judges": {
        "command": "judge",
        "reward": "judge reward_model",
        "section": "judge preferences reward_model",
    },
    "sandbox": {"sandbox": "docker local sandbox_fusion"},
    "studies": {
        "behaviour": "checked faulty premature",
        "command": "build-tiny export rescore study transfer",
        "evaluation": "robustness",
        "file_format": "atif",
    },
    "synthesis": {
        "command": "synthesise",
        "section": "cpt synthesis",
        "synthesis_method": "first_order higher_order openapi tables transitions webshaper",
    },
    "trust": {"command": "audit doctor preflight", "monitor": "alarms", "section": "alarms audit"},
    "view": {"command": "top view", "monitor": "trackers"},
    "vllm": {"engine": "vllm"},
}
"""The names in turnwise's own wings by kind, and by the extra that brings each: what to install."""


@dataclass(frozen=True)
class Wing:
    """The additions of a package. Nothing that it names is imported before it is asked for.

    >>> WING = Wing(commands={"view": "turnwise_view.viewing:view"})
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    """Commands of the command line by their names: `package.module:function`, a function as typer
    takes it, or a typer application for several."""
    parts: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    """Parts that a recipe names, by kind ("environment") and name: `package.module:Name`, and a
    line about it. A `first_check` is by its choice or section ("engine.vllm", "agent"): a function
    of a recipe that raises ConfigError for what is missing, before a model library is imported."""
    reward_parts: Sequence[str] = ()
    """Modules that declare parts of rewards (`turnwise.reward_part`)."""
    claims: str = ""
    """A function from a recipe to what its choices of this wing need and deny others
    (`turnwise.conflicts.Claim`): `package.module:function`. Empty where there is nothing to say."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Sections that it adds to recipes, by name: the class of their settings
    (`turnwise.config.wing_section.WingSection`), as `package.module:Class`; and by a section and a
    name, as "engine.vllm", one more class of settings that such a section may have."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Functions from a section of `settings` and the run's `Components` to the components that the
    run is to have, with a player of episodes for instance, by the section's name:
    `package.module:function`. They are made when the model is there, and before the reward."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Functions from a recipe and the run's folder to a context with the processes beside the run's
    own (`turnwise.parts.resources.Resources`), by the section that asks for them:
    `package.module:function`."""
    stages: Mapping[str, tuple[str, Literal["first", "after RL"]]] = field(default_factory=dict)
    """Stages of runs, by the section that asks for each: its class, as `package.module:Class`,
    which is made without arguments and has the core's protocol `Stage`, and its place among the
    run's own stages."""
    files: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)
    """TOML files that a command finds by their names, by kind: "recipe" or "study". A path in one
    is relative to it, and its first line is a comment that describes it."""

    def names(self) -> set[tuple[str, str]]:
        """All names of it, each with its kind."""
        named = [*self.parts.items(), *self.files.items()]
        own = {(kind, name) for kind, found in named for name in found}
        own |= {("section", name) for name in (*self.settings, *self.sections, *self.resources)}
        own |= {("stage", name) for name in self.stages}
        return own | {("command", name) for name in self.commands}

    def without(self, names: set[tuple[str, str]]) -> "Wing":
        """The wing without some names."""

        def kept(kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in found.items() if (kind, name) not in names}

        return replace(
            self,
            commands=kept("command", self.commands),
            parts={kind: kept(kind, found) for kind, found in self.parts.items()},
            sections=kept("section", self.sections),
            stages=kept("stage", self.stages),
            resources=kept("section", self.resources),
            settings=kept("section", self.settings),
            files={kind: kept(kind, found) for kind, found in self.files.items()},
        )


@dataclass(frozen=True)
class Wings:
    """The wings that are installed."""

    usable: Mapping[str, Wing]
    problems: Sequence[str]
    """A sentence for each wing, or part of one, that is left out."""

    def commands(self) -> dict[str, str]:
        """The commands of all wings: the place of each by its name."""
        return self._all("commands")

    def parts(self, kind: str) -> dict[str, tuple[str, str]]:
        """The parts of a kind: place and line of each by its name."""
        found: dict[str, tuple[str, str]] = {}
        for wing in self.usable.values():
            found |= wing.parts.get(kind, {})
        return found

    def files(self, kind: str) -> dict[str, Path]:
        """The files of a kind by their names, sorted."""
        found: dict[str, Path] = {}
        for wing in self.usable.values():
            found |= wing.files.get(kind, {})
        return dict(sorted(found.items()))

    def part(self, kind: str, name: str) -> Any:
        """A part of a kind without a registry. MissingExtraError where its wing is not there."""
        found = self.parts(kind)
        if name not in found:
            raise missing(kind, name) or ConfigError(f"no wing has the {kind} {name}")
        return loaded(found[name][0])

    def monitors(self, recipe: Any) -> list[Callable[..., Any]]:
        """The functions that open what a recipe's steps are sent to, those of its sections and of
        its trackers: each takes the run's folder, the steps that are done and a function that
        tells a person, and gives an object with `log` and `close`."""
        asked = {*recipe.added(), *(["trackers"] if recipe.monitor.trackers else [])}
        found = self.parts("monitor").items()
        return [loaded(place)(recipe) for name, (place, _) in found if name in asked]

    def made_by(self, section: str) -> Callable[..., Any] | None:
        """The function that makes the parts of a section; None where it has none."""
        places = self._all("sections")
        return loaded(places[section]) if section in places else None

    def resources_of(self, section: str) -> Callable[..., Any]:
        """The function that makes a section's resources. ConfigError where no wing has one."""
        places = self._all("resources")
        if section not in places:
            raise ConfigError(f"no wing has the resources that the section {section} asks for")
        made: Callable[..., Any] = loaded(places[section])
        return made

    def stages(self, recipe: Any) -> dict[str, tuple[str, str]]:
        """The stages that a recipe asks for, each with the place of its class and its own place in
        the run: a section asks for the stage of its name unless its `steps` are 0."""
        return {
            name: stage
            for name, stage in self.all_stages().items()
            if (section := getattr(recipe, name, None)) and getattr(section, "steps", 1) != 0
        }

    def all_stages(self) -> dict[str, tuple[str, str]]:
        """The stages of all wings by name, sorted."""
        return self._all("stages")

    def settings(self) -> dict[str, str]:
        """The settings that wings add to recipes: the place of each class by its name."""
        return self._all("settings")

    def _all(self, field: str) -> dict[str, Any]:
        """A mapping that each wing has under a field, of all wings, sorted by name."""
        found: dict[str, Any] = {}
        for wing in self.usable.values():
            found |= getattr(wing, field)
        return dict(sorted(found.items()))

    def claims(self) -> list[Callable[[Any], Iterable[Claim]]]:
        """The functions that give the claims of a recipe, those of all wings."""
        return [loaded(wing.claims) for wing in self.usable.values() if wing.claims]

    def reward_parts(self) -> list[str]:
        """The modules that declare parts of rewards."""
        return [module for wing in self.usable.values() for module in wing.reward_parts]


@cache
def wings() -> Wings:
    """Find the wings of this environment, once for a process."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return wings_of(points)


def wings_of(points: Sequence[EntryPoint]) -> Wings:
    """Load wings. Of several with one name, and of several with a command of one name, none is
    used; nor one that is for another version of turnwise, or cannot be imported."""
    usable: dict[str, Wing] = {}
    problems: list[str] = []
    names = Counter(point.name for point in points)
    for point in points:
        why = "another wing has its name" if names[point.name] > 1 else _unfit(point)
        if why is None:
            try:
                found = point.load()
                why = None if isinstance(found, Wing) else f"{point.value} is not a Wing"
                if why is None:
                    _load_first(found)
            except Exception as error:  # noqa: BLE001 - whatever a package does when it is imported
                why = f"it cannot be imported: {located(error)}"
        if why is None:
            usable[point.name] = found
        else:
            problems.append(f"wing {point.name} of {package_of(point)} is left out: {why}")
    claimed = Counter(name for wing in usable.values() for name in wing.names())
    twice = {name for name, count in claimed.items() if count > 1}
    for kind, name in sorted(twice):
        owners = " and ".join(key for key, wing in usable.items() if (kind, name) in wing.names())
        problems.append(f"{kind} {name} is left out: wings {owners} both have it")
    return Wings({key: wing.without(twice) for key, wing in usable.items()}, problems)


def _load_first(wing: Wing) -> None:
    """Import what every recipe takes of a wing, so that a fault in it is found here. Raises
    ConfigError for a section that lacks what a run asks of one."""
    if wing.claims:
        loaded(wing.claims)
    for name, place in wing.settings.items():
        settings = loaded(place)
        if "." not in name and not all(hasattr(one, "misfits") for one in _classes(settings)):
            raise ConfigError(f"{place} is no turnwise.config.wing_section.WingSection")


def _classes(annotation: Any) -> Iterator[type]:
    """The classes that an annotation names: itself, or those of a union."""
    if isinstance(annotation, type):
        yield annotation
    for inner in get_args(annotation):
        yield from _classes(inner)


def loaded(place: str) -> Any:
    """Import `package.module:name`, as a wing names it."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def missing(kind: str, name: str) -> MissingExtraError | None:
    """The error for a name of one of our wings that is not installed; None for other names."""
    for extra, names in OWN.items():
        if extra not in wings().usable and name in names.get(kind, "").split():
            return MissingExtraError(f"turnwise-{extra}, which has the {kind} {name},", extra)
    return None


def _unfit(point: EntryPoint) -> str | None:
    """Why a wing's package is not for this turnwise, by its own requirement."""
    requirements = [] if point.dist is None else point.dist.requires or []
    for one in map(Requirement, requirements):
        here = version("turnwise")
        # A specifier leaves versions such as 0.2.dev1 out unless it is asked not to.
        if one.name == "turnwise" and not one.specifier.contains(here, prereleases=True):
            return f"it is for turnwise{one.specifier}, and this is {here}"
    return None


def package_of(point: EntryPoint) -> str:
    """The name of the package that an entry point is in."""
    return point.module if point.dist is None else point.dist.name
