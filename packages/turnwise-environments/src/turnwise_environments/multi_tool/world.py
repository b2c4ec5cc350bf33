"""The made-up towns that are asked about, and what a document says of each.

Names are put together from syllables, so that no model knows them. Each split has its own towns.
Not here: questions (`tasks.py`).
"""

import itertools
import random
from dataclasses import dataclass

from turnwise.environments.base import Split
from turnwise.seeds import derive

FIRST = ("Bre", "Mol", "Tar", "Vin", "Ost", "Kel", "Dun", "Ra", "Sel", "Gor", "Fa", "Hum", "Li")
SECOND = ("lin", "den", "vik", "mar", "ton", "by", "gard", "nes", "la", "sund", "berg", "o", "ra")
THIRD = ("", "en", "is", "a")
RIVERS = (
    *("osk", "tem", "irr", "wend", "aln", "bure", "cald", "esk", "fenn", "gade", "hest", "ilm"),
    *("jor", "kam", "lune", "mink", "nidd", "ouse", "pell", "rhee", "swale", "tave", "ure", "wye"),
)
TOWNS = 240
"""Towns in each split."""


@dataclass(frozen=True)
class Town:
    """Example: Town("Brelin", "osk", 412, 1287)."""

    name: str
    river: str
    people: int
    year: int

    @property
    def document(self) -> str:
        """The document that a search shows."""
        return f"{self.name}. River: {self.river}. People: {self.people}. Founded: {self.year}."


def towns() -> dict[Split, list[Town]]:
    """TOWNS in each split, the same in every process; numbers of people differ."""
    stream = random.Random(derive("multi tool", "towns"))
    names = sorted({"".join(parts) for parts in itertools.product(FIRST, SECOND, THIRD)})
    chosen = stream.sample(names, 2 * TOWNS)
    people = stream.sample(range(101, 999), 2 * TOWNS)
    found = [
        Town(name, stream.choice(RIVERS), number, stream.randint(1001, 1899))
        for name, number in zip(chosen, people, strict=True)
    ]
    return {"train": found[:TOWNS], "heldout": found[TOWNS:]}
