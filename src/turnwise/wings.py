"""What packages beside turnwise add to it: wings, found by the entry points `turnwise.wings`.

    [project.entry-points."turnwise.wings"]
    view = "turnwise_view.wing:WING"

The core imports no wing by its name; it asks here for what is installed. A wing that cannot be
used is left out, with a sentence that says why, and all else works. Not here: parts that a recipe
names (`registry.py`), for which an entry point of their kind is enough.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version

from packaging.requirements import Requirement

from turnwise.errors import MissingExtraError, located

GROUP = "turnwise.wings"
COMMANDS = {"top": "view", "view": "view"}
"""The commands of turnwise's own wings, and the extra that brings each."""


@dataclass(frozen=True)
class Wing:
    """What a package adds. Nothing that it names is imported before it is asked for.

    >>> WING = Wing(commands={"view": "turnwise_view.viewing:view"})
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    """Commands of the command line by their names: `package.module:function`, a function as typer
    takes it, or a typer application for several."""


@dataclass(frozen=True)
class Wings:
    """The wings that are installed."""

    usable: Mapping[str, Wing]
    problems: Sequence[str]
    """A sentence for each wing, or part of one, that is left out."""

    def commands(self) -> dict[str, str]:
        """The commands of all wings: the place of each by its name."""
        return {
            name: place for wing in self.usable.values() for name, place in wing.commands.items()
        }


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
            except Exception as error:  # noqa: BLE001 - whatever a package does when it is imported
                why = f"it cannot be imported: {located(error)}"
            else:
                why = None if isinstance(found, Wing) else f"{point.value} is not a Wing"
        if why is None:
            usable[point.name] = found
        else:
            problems.append(f"wing {point.name} of {_package(point)} is left out: {why}")
    claimed = Counter(name for wing in usable.values() for name in wing.commands)
    twice = {name for name, count in claimed.items() if count > 1}
    for name in sorted(twice):
        owners = " and ".join(key for key, wing in usable.items() if name in wing.commands)
        problems.append(f"command {name} is left out: wings {owners} both have it")
    return Wings({key: _without(wing, twice) for key, wing in usable.items()}, problems)


def missing_command(name: str) -> MissingExtraError | None:
    """What to say where a command is one of a wing of ours that is not installed."""
    extra = COMMANDS.get(name)
    if extra is None or name in wings().commands():
        return None
    return MissingExtraError(f"turnwise-{extra}, which has the command {name},", extra)


def _without(wing: Wing, commands: set[str]) -> Wing:
    kept = {name: place for name, place in wing.commands.items() if name not in commands}
    return Wing(kept)


def _unfit(point: EntryPoint) -> str | None:
    """Why a wing's package is not for this turnwise, by its own requirement."""
    requirements = [] if point.dist is None else point.dist.requires or []
    for one in map(Requirement, requirements):
        here = version("turnwise")
        if one.name == "turnwise" and not one.specifier.contains(here, prereleases=True):
            return f"it is for turnwise{one.specifier}, and this is {here}"
    return None


def _package(point: EntryPoint) -> str:
    return point.module if point.dist is None else point.dist.name
