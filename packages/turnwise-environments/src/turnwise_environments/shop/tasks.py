"""The made-up products of the shop, and requests: attributes, options and a highest price."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from turnwise.environments.tasksets import Draft, Tasks, TaskSet, drafted, every
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity, words_in
from turnwise_environments.rewards.shopping import Wanted

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
BRANDS = words_in(
    "Alder Birka Corvo Dunmar Elvik Fjora Galen Hesta Istro Jolva Kestra Lumo Marrow Nordal "
    "Orsen Pavo Quillo Runa Selda Torvi"
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
    def about(self) -> tuple[str, tuple[str, ...], frozenset[str]]:
        """The kind of thing: its name, categories and nouns."""
        return self.kind, self.category, self.nouns

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


WORDINGS = (
    "Find me a {attributes} {kind} in {options}, for less than {price:.2f} dollars.",
    "I am looking for a {kind} that is {attributes}. It should be {options} and cost at most "
    "{price:.2f} dollars.",
    "I need a {kind}, {options}. It has to be {attributes}, and I can spend {price:.2f} dollars.",
    "Buy a {options} {kind} for me, {attributes}, price lower than {price:.2f} dollars.",
)
DRAFTS_PER_TASK = 50


COUNT, PAGE = 1000, 10
"""The standard tasks, and the results on a page with which `RANDOM_SCORE` was measured."""
RANDOM_SCORE = 0.05
"""Measured on the standard tasks: success of `random_actions`; as web pages too."""


def made_tasks(count: int, products: Sequence[Product]) -> TaskSet:
    """`count` tasks for each split; no product that one split's tasks were made from is the other
    split's, and nothing is wanted twice. The digest is of the catalogue, too. Raises ConfigError
    where there are not so many."""

    def draft(number: int) -> Draft:
        stream = random.Random(derive("shop", number))
        product = stream.choice(products)
        wanted = _wanted(product, stream)
        values = [*wanted.options.values()]
        asked = [wanted.query, sorted(wanted.attributes), values, wanted.highest_price]
        make = partial(_task, product, wanted, stream)
        return Draft(json.dumps(asked), make, split_key=product.id)

    def content(tasks: Tasks) -> str:
        catalogue = ([product.id, product.text, product.cents] for product in products)
        rows = ([split, task.prompt, dict(task.secret)] for split, task in every(tasks))
        return "".join(map(json.dumps, chain(catalogue, rows)))

    drafts = drafted(draft, 2 * count * DRAFTS_PER_TASK)
    return TaskSet.made("shop", drafts, count, content=content)


def _wanted(product: Product, stream: random.Random) -> Wanted:
    attributes = tuple(stream.sample(product.attributes, stream.randint(1, 2)))
    options = {name: stream.choice(values) for name, values in product.options.items()}
    # In tens of dollars, as people say it, and always above the product's own price.
    highest = float((product.cents // 1000 + stream.randint(1, 3)) * 10)
    return Wanted(*product.about, attributes, options, highest)


def _task(product: Product, wanted: Wanted, stream: random.Random) -> Task:
    options = dict(wanted.options)
    said = [f"{name} {value}" for name, value in options.items()]
    prompt = stream.choice(WORDINGS).format(
        kind=wanted.query,
        attributes=" and ".join(wanted.attributes),
        options=" and ".join(said),
        price=wanted.highest_price,
    )
    secret = {
        "product": product.id,
        "attributes": list(wanted.attributes),
        "options": options,
        "highest_price": wanted.highest_price,
    }
    name = identity([prompt, product.id])
    return Task(name, prompt, secret, info={"kind": wanted.query, "options": len(options)})
