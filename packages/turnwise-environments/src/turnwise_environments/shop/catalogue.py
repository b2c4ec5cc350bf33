"""The made-up products of the shop: kinds of things, with attributes, options and prices.

Not here: what is asked for (`tasks.py`), pages (`environment.py`).
"""

import random
from dataclasses import dataclass
from functools import cached_property

from turnwise.seeds import derive

PRODUCTS_PER_KIND = 50
KINDS = {
    ("kitchen", "drinks"): ("kettle", "water bottle", "coffee mug", "tea set"),
    ("kitchen", "cooking"): ("frying pan", "knife block", "mixing bowl"),
    ("clothing", "outdoor"): ("rain jacket", "hiking boots", "wool hat"),
    ("clothing", "indoor"): ("slippers", "bath robe", "house dress"),
    ("home", "bedroom"): ("bed sheet", "floor lamp", "storage basket"),
    ("home", "garden"): ("flower pot", "garden hose", "sun umbrella"),
    ("office", "desk"): ("desk lamp", "pen holder", "office chair"),
}
ATTRIBUTES = {
    "kitchen": (
        *("dishwasher safe", "bpa free", "stainless steel", "non slip", "heat resistant"),
        *("easy clean", "lead free", "double walled"),
    ),
    "clothing": (
        *("machine washable", "water proof", "long sleeve", "quick drying", "slim fit"),
        *("faux fur", "anti static", "breathable lining"),
    ),
    "home": (
        *("space saving", "fade resistant", "easy assemble", "energy efficient", "eco friendly"),
        *("solid wood", "rust proof", "hand made"),
    ),
    "office": (
        *("height adjustable", "wireless charging", "high density", "noise reducing"),
        *("tool free", "scratch resistant", "battery powered", "foldable frame"),
    ),
}
COLOURS = ("black", "white", "navy", "olive", "maroon", "teal", "ivory", "coral", "amber", "plum")
SIZES = {
    "kitchen": ("300 ml", "500 ml", "1 litre", "2 litre", "5 litre"),
    "clothing": ("x-small", "small", "medium", "large", "xx-large"),
    "home": ("40 cm", "60 cm", "90 cm", "120 cm", "180 cm"),
    "office": ("compact", "standard", "wide", "extra wide", "tall"),
}
BRANDS = (
    *("Alder", "Birka", "Corvo", "Dunmar", "Elvik", "Fjora", "Galen", "Hesta", "Istro", "Jolva"),
    *("Kestra", "Lumo", "Marrow", "Nordal", "Orsen", "Pavo", "Quillo", "Runa", "Selda", "Torvi"),
)


@dataclass(frozen=True)
class Product:
    """Example: Product("P0001", "Lumo Kettle K12", "kettle", ("kitchen", "drinks"), ...)."""

    id: str
    title: str
    kind: str
    category: tuple[str, ...]
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    cents: int

    @property
    def price(self) -> float:
        """Price in dollars."""
        return self.cents / 100

    @cached_property
    def nouns(self) -> frozenset[str]:
        """Nouns of the title: the kind's words and the brand."""
        return frozenset([*self.kind.split(), self.title.split()[0].lower()])

    @property
    def features(self) -> str:
        """The text of the page of attributes."""
        return "; ".join(self.attributes)

    @property
    def text(self) -> str:
        """The text that a search looks through."""
        values = " ".join(value for values in self.options.values() for value in values)
        return f"{self.title}. {self.features}. {values}"


def catalogue() -> list[Product]:
    """All products, the same in every process."""
    stream = random.Random(derive("shop", "catalogue"))
    found: list[Product] = []
    for (wide, narrow), kinds in KINDS.items():
        for kind in kinds:
            for _ in range(PRODUCTS_PER_KIND):
                found.append(_product(f"P{len(found):04d}", (wide, narrow), kind, stream))
    return found


def _product(name: str, category: tuple[str, str], kind: str, stream: random.Random) -> Product:
    wide = category[0]
    attributes = tuple(stream.sample(ATTRIBUTES[wide], stream.randint(2, 4)))
    options = {"color": tuple(stream.sample(COLOURS, stream.randint(2, 4)))}
    if stream.random() < 0.6:
        options["size"] = tuple(stream.sample(SIZES[wide], stream.randint(2, 4)))
    model = f"{stream.choice('ABCDEFGH')}{stream.randint(10, 99)}"
    told = f", {attributes[0]}" if stream.random() < 0.3 else ""
    title = f"{stream.choice(BRANDS)} {kind.title()} {model}{told}"
    cents = stream.randint(4, 120) * 100 + stream.choice([0, 49, 95, 99])
    return Product(name, title, kind, (*category, kind), attributes, options, cents)
