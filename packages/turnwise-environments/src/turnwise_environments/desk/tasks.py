"""The tasks of the desk: a database, a policy, and what a user says, sentence by sentence.

About half of the wishes are forbidden. Every task changes the database, a refusal too, and what is
to be written is in the database only: doing nothing, or the same each time, solves none. Not here:
how a user answers (`user.py`).
"""

import copy
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.desk.policy import (
    FULL_DAYS,
    RETURN_DAYS,
    Policy,
    Wish,
    WishKind,
    decide,
    forbidden_by,
)
from turnwise_environments.desk.shop import Shop, State

NAMES = (
    *("ada", "ben", "cleo", "dana", "eli", "finn", "gus", "hana", "ivo", "jade", "kit", "lena"),
    *("max", "nora", "otto", "pia", "rosa", "sam", "tess", "udo", "vera", "walt", "yuri", "zoe"),
)
NUMBERS = tuple(str(number) for number in range(10, 100))
"""Customers' numbers, in place of names in short tasks: a small model writes digits sooner."""
ITEMS = ("lamp", "chair", "radio", "clock", "mirror", "kettle", "tent", "drum", "vase", "scarf")
STREETS = ("elm road", "mill lane", "park row", "oak street", "bay walk", "hill road", "dock lane")
STATUSES = ("open", "sent", "delivered")
CUSTOMERS, ORDERS = 3, 5
WISHES: Mapping[WishKind, str] = {
    "cancel": "Please cancel order {order}.",
    "take_back": "I want to give order {order} back.",
    "change_street": "Please send order {order} to another street.",
}
QUESTIONS: Mapping[WishKind, str] = {
    "cancel": "How many dollars do I get? If you cannot do it, which rule forbids it?",
    "take_back": "How many dollars do I get? If you cannot do it, which rule forbids it?",
    "change_street": "On which day will it come? If you cannot do it, which rule forbids it?",
}


SHORT_QUESTIONS: Mapping[WishKind, str] = {
    "cancel": "How much, or which rule?",
    "take_back": "How much, or which rule?",
    "change_street": "Which day, or which rule?",
}
RULES: Mapping[WishKind, tuple[int, ...]] = {
    "cancel": (1, 2, 2),
    "take_back": (1, 3, 4),
    "change_street": (1, 5, 5),
}
"""Rules that forbid wishes of a kind, each as often as it is drawn."""


RANDOM_SCORE = 0.0015
"""Measured on the standard tasks: success of an agent that lets the user talk, then refuses with a
random rule and price, and names the rule."""
COUNT = 1000


def made_tasks(count: int, short: bool, wishes: Sequence[WishKind]) -> TaskSet:
    """`count` tasks for each split, with such wishes, in few words if `short`; what is said in one
    split is not said in the other."""

    def draft(number: int) -> Draft:
        task = _task(random.Random(derive("desk", number)), short, wishes)
        return Draft(json.dumps([task.prompt, task.data["script"]]), lambda: task)

    standard = count == COUNT and not short and set(wishes) == set(WISHES)
    scores = SOLVED | ({"random": RANDOM_SCORE} if standard else {})
    return TaskSet.made("desk", drafted(draft), count, scores)


def _task(stream: random.Random, short: bool, wishes: Sequence[WishKind]) -> Task:
    policy = Policy(stream.choice(FULL_DAYS), stream.choice(RETURN_DAYS))
    state = _state(stream, NUMBERS if short else NAMES)
    order, wish, honest = _wish(stream, policy, state, wishes)
    decision = decide(policy, order, wish, honest)
    code = state["customers"][order["customer"]]["code"]
    given = code if honest else stream.choice([one for one in range(100, 999) if one != code])
    who = f"customer {order['customer']}" if short else order["customer"]
    said = f"I am {who}. {WISHES[wish.kind].format(order=wish.order)}"
    document = policy.short_document(wishes) if short else policy.document
    prompt = f"{document}\nCustomer: {said}"
    script = [["code", f"My code is {given}."]]
    if wish.street:
        script.append(["street", f"It is {wish.street}."])
    script.append(["", (SHORT_QUESTIONS if short else QUESTIONS)[wish.kind]])
    after = copy.deepcopy(state)
    getattr(Shop(after), decision.tool)(**decision.arguments)
    data = {"state": state, "script": script}
    secret = {
        "call": [decision.tool, dict(decision.arguments)],
        "check": {"name": order["customer"], "code": given},
        "told": str(decision.told),
        "state": after,
    }
    rule = forbidden_by(policy, order, wish, honest)
    info = {"wish": wish.kind, "rule": rule, "order": wish.order}
    content = json.dumps([prompt, data], sort_keys=True)
    identity = hashlib.sha256(content.encode()).hexdigest()[:16]
    return Task(identity, prompt, secret, data, info)


def _state(stream: random.Random, known: Sequence[str]) -> State:
    names = stream.sample(known, CUSTOMERS)
    numbers = stream.sample(range(100, 1000), ORDERS)
    return {
        "customers": {name: {"code": stream.randint(100, 999), "balance": 0} for name in names},
        "orders": {
            str(number): {
                "customer": stream.choice(names),
                "item": stream.choice(ITEMS),
                "price": 2 * stream.randint(6, 49),
                "status": stream.choice(STATUSES),
                "age": stream.randint(1, 90),
                "street": stream.choice(STREETS),
                "day": stream.randint(10, 28),
            }
            for number in numbers
        },
        "refusals": {},
    }


def _wish(
    stream: random.Random, policy: Policy, state: State, wishes: Sequence[WishKind]
) -> tuple[Mapping[str, Any], Wish, bool]:
    """An order, a wish for it, and whether the user is the customer it claims to be; half of the
    wishes are granted."""
    granted = stream.random() < 0.5
    kind = stream.choice(wishes)
    rule = 0 if granted else stream.choice(RULES[kind])
    number = stream.choice(sorted(state["orders"]))
    order = state["orders"][number]
    while forbidden_by(policy, order, Wish(kind, int(number)), rule != 1) != rule:
        order["status"], order["age"] = stream.choice(STATUSES), stream.randint(1, 90)
    street = ""
    if kind == "change_street":
        street = stream.choice([one for one in STREETS if one != order["street"]])
    return order, Wish(kind, int(number), street), rule != 1
