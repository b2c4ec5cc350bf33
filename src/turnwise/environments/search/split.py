"""Splits question candidates by entity: no name of a held-out question occurs in a training one.

Whole top-level packages go to one side or the other, so that most chains stay in one piece; chains
across the border are given up, and so are training questions with a name that a held-out one has.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise.environments.search.chains import Candidate
from turnwise.environments.search.graph import Graph

HELDOUT_SHARE = 0.45
"""Share of the weight of all candidates that the held-out packages may hold."""

TRAIN_PACKAGES = ("builtins",)
"""Packages that every agent should see in training."""

_WEIGHTS = {"one": 1.0, "two": 2.0, "three": 4.0, "intersection": 2.0}
"""Long chains are rare, so that losing one costs more."""


def separate(found: Sequence[Candidate], graph: Graph) -> tuple[list[Candidate], list[Candidate]]:
    """(training, held-out) candidates with no name in common, case aside, in their given order."""
    packages = [frozenset(graph.package(name) for name in entry.symbols) for entry in found]
    heldout_packages = _Partition(found, packages).heldout()
    heldout = [entry for entry, own in zip(found, packages, strict=True) if own <= heldout_packages]
    taken = {name.lower() for entry in heldout for name in entry.symbols}
    train = [
        entry
        for entry, own in zip(found, packages, strict=True)
        if own.isdisjoint(heldout_packages)
        and taken.isdisjoint(name.lower() for name in entry.symbols)
    ]
    return train, heldout


@dataclass
class _Partition:
    """Packages dealt to two sides: heaviest first, to the side with which they share most."""

    found: Sequence[Candidate]
    packages: Sequence[frozenset[str]]
    weight: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    links: dict[str, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )

    def heldout(self) -> set[str]:
        """The packages of the held-out side."""
        for entry, own in zip(self.found, self.packages, strict=True):
            self._count(own, _WEIGHTS[entry.hops])
        total = sum(self.weight.values())
        sides: tuple[set[str], set[str]] = (set(TRAIN_PACKAGES), set())
        room = [total * (1 - HELDOUT_SHARE), total * HELDOUT_SHARE]
        room[0] -= sum(self.weight[package] for package in TRAIN_PACKAGES)
        rest = sorted(set(self.weight) - sides[0], key=lambda name: (-self.weight[name], name))
        for package in rest:
            side = self._better_side(package, sides, room)
            sides[side].add(package)
            room[side] -= self.weight[package]
        return sides[1]

    def _count(self, own: frozenset[str], weight: float) -> None:
        for package in sorted(own):
            self.weight[package] += weight / len(own)
            for other in own - {package}:
                self.links[package][other] += weight

    def _better_side(self, package: str, sides: Sequence[set[str]], room: Sequence[float]) -> int:
        def worth(side: int) -> tuple[float, float]:
            fits = self.weight[package] <= room[side]
            shared = sum(self.links[package][other] for other in sorted(sides[side]))
            return (shared if fits else -1.0, room[side])

        return max((0, 1), key=worth)
