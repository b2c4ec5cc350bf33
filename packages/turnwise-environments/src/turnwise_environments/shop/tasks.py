"""Requests to the shop: a product in words, with attributes, options and a highest price.

Not here: products (`catalogue.py`), and when a purchase is right (`rewards/shopping.py`).
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from turnwise.environments.tasksets import Draft, Tasks, TaskSet, drafted, every
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.rewards.shopping import Wanted
from turnwise_environments.shop.catalogue import Product

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
"""Measured on the standard tasks: success of an agent that searches for the request's words, clicks
one of the first results and random options, and buys; as web pages too."""


def made_tasks(count: int, products: Sequence[Product]) -> TaskSet:
    """`count` tasks for each split; no product that one split's tasks were made from is the other
    split's, and nothing is wanted twice. The digest is of the catalogue, too.

    Raises ConfigError where there are not so many.
    """

    def draft(number: int) -> Draft:
        stream = random.Random(derive("shop", number))
        product = stream.choice(products)
        wanted, options = _wanted(product, stream)
        asked = [wanted.query, sorted(wanted.attributes), [*options.values()], wanted.highest_price]
        make = partial(_task, product, wanted, options, stream)
        return Draft(json.dumps(asked), make, split_key=product.id)

    def content(tasks: Tasks) -> str:
        catalogue = ([product.id, product.text, product.cents] for product in products)
        rows = ([split, task.prompt, dict(task.secret)] for split, task in every(tasks))
        return "".join(map(json.dumps, chain(catalogue, rows)))

    drafts = drafted(draft, 2 * count * DRAFTS_PER_TASK)
    return TaskSet.made("shop", drafts, count, content=content)


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
