"""Requests to the shop: a product in words, with attributes, options and a highest price.

Not here: products (`catalogue.py`), and when a purchase is right (`rewards/shopping.py`).
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence

from turnwise.environments.base import Split
from turnwise.environments.shop.catalogue import Product
from turnwise.errors import ConfigError
from turnwise.rewards.shopping import Wanted
from turnwise.seeds import derive
from turnwise.types import Task

WORDINGS = (
    "Find me a {attributes} {kind} in {options}, for less than {price:.2f} dollars.",
    "I am looking for a {kind} that is {attributes}. It should be {options} and cost at most "
    "{price:.2f} dollars.",
    "I need a {kind}, {options}. It has to be {attributes}, and I can spend {price:.2f} dollars.",
    "Buy a {options} {kind} for me, {attributes}, price lower than {price:.2f} dollars.",
)
DRAFTS_PER_TASK = 50


def made_tasks(count: int, products: Sequence[Product]) -> dict[Split, list[Task]]:
    """`count` tasks for each split; no product that one split's tasks were made from is the other
    split's, and nothing is wanted twice.

    Raises ConfigError where there are not so many.
    """
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    seen: set[tuple[object, ...]] = set()
    for number in range(2 * count * DRAFTS_PER_TASK):
        stream = random.Random(derive("shop", number))
        product = stream.choice(products)
        split: Split = "heldout" if derive("split", product.id) % 2 else "train"
        wanted, options = _wanted(product, stream)
        chosen = tuple(options.values())
        asked = (wanted.query, frozenset(wanted.attributes), chosen, wanted.highest_price)
        if asked in seen or len(tasks[split]) == count:
            continue
        seen.add(asked)
        tasks[split].append(_task(product, wanted, options, stream))
        if all(len(found) == count for found in tasks.values()):
            return tasks
    found = min(map(len, tasks.values()))
    raise ConfigError(f"shop: there are only about {found} such tasks: lower count")


def _wanted(product: Product, stream: random.Random) -> tuple[Wanted, dict[str, str]]:
    attributes = tuple(stream.sample(product.attributes, stream.randint(1, 2)))
    options = {name: stream.choice(values) for name, values in product.options.items()}
    highest = float((product.cents // 1000 + stream.randint(1, 3)) * 10)
    wanted = Wanted(
        product.kind,
        product.category,
        product.nouns,
        attributes,
        options,
        highest,
    )
    return wanted, options


def _task(
    product: Product, wanted: Wanted, options: Mapping[str, str], stream: random.Random
) -> Task:
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
        "options": dict(options),
        "highest_price": wanted.highest_price,
    }
    name = hashlib.sha256(json.dumps([prompt, product.id]).encode()).hexdigest()[:16]
    return Task(name, prompt, secret, info={"kind": wanted.query, "options": len(options)})


def tasks_hash(tasks: Mapping[Split, Sequence[Task]], products: Sequence[Product]) -> str:
    """A hash of all tasks and of the catalogue."""
    digest = hashlib.sha256()
    for product in products:
        digest.update(json.dumps([product.id, product.text, product.cents]).encode())
    for split, entries in tasks.items():
        for task in entries:
            digest.update(json.dumps([split, task.prompt, dict(task.secret)]).encode())
    return digest.hexdigest()
