"""The desk's shop, its policy, and the tasks: a database, and what a user says, one by one.

The state is plain data: customers (name -> code, balance), orders (number -> customer, item, price,
status, age, street, day), refusals (number -> rule, price). The tools keep to no policy: the agent
has to; its two numbers differ from task to task. About half of the wishes are forbidden. Every task
changes the database, a refusal too, and what is to be written is in the database only: doing
nothing, or the same each time, solves none.
"""

import copy
import json
import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import StrictInt

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.errors import ToolError
from turnwise.seeds import derive
from turnwise.tools.tool import consequential, tool
from turnwise.types import Task
from turnwise_environments.common import identity, words_in

State = dict[str, dict[str, Any]]
Status = Literal["open", "sent", "delivered", "cancelled", "returned"]
WishKind = Literal["cancel", "take_back", "change_street"]
FULL_DAYS = (5, 10, 20)
RETURN_DAYS = (15, 30, 60)


@dataclass(frozen=True)
class Policy:
    """Example: Policy(full_days=10, return_days=30)."""

    full_days: int
    """Up to this age, a cancelled order is paid back in full."""
    return_days: int
    """Up to this age, a delivered order is taken back."""

    @property
    def document(self) -> str:
        return (
            "Rule 1: serve only who gives the right code. "
            "Rule 2: cancel open orders only; the refund is the price, or half of it if the order "
            f"is more than {self.full_days} days old. "
            "Rule 3: take back delivered orders only; the refund is the price. "
            f"Rule 4: take nothing back that is more than {self.return_days} days old. "
            "Rule 5: change the street of open orders only. "
            "Refuse what a rule forbids, with the number of the first such rule and the order's "
            "price."
        )

    def short_document(self, wishes: Collection[WishKind]) -> str:
        """The rules that matter for such wishes, in few words for a small model."""
        said = ["1 right code."]
        if "cancel" in wishes:
            said.append(f"2 cancel if open, half price over {self.full_days} days.")
        if "take_back" in wishes:
            said.append(f"3 take back if delivered. 4 not over {self.return_days} days.")
        if "change_street" in wishes:
            said.append("5 change if open.")
        return " ".join([*said, "Else refuse."])


@dataclass(frozen=True)
class Wish:
    """A user's request about one order. Example: Wish("cancel", 412)."""

    kind: WishKind
    order: int
    street: str = ""


@dataclass(frozen=True)
class Decision:
    """The one call that is right, and the fact that the user must learn in the end."""

    tool: str
    arguments: Mapping[str, Any]
    told: int


def decide(policy: Policy, order: Mapping[str, Any], wish: Wish, code_is_right: bool) -> Decision:
    rule = forbidden_by(policy, order, wish, code_is_right)
    if rule:
        arguments = {"order": wish.order, "rule": rule, "price": order["price"]}
        return Decision("refuse", arguments, rule)
    if wish.kind == "change_street":
        change = {"order": wish.order, "street": wish.street}
        return Decision("change_street", change, order["day"] + 2)
    refund = order["price"]
    if wish.kind == "cancel" and order["age"] > policy.full_days:
        refund //= 2
    return Decision(wish.kind, {"order": wish.order, "refund": refund}, refund)


def forbidden_by(policy: Policy, order: Mapping[str, Any], wish: Wish, code_is_right: bool) -> int:
    """Number of the first rule that forbids a wish; 0 for none."""
    if not code_is_right:
        return 1
    if wish.kind == "cancel":
        return 0 if order["status"] == "open" else 2
    if wish.kind == "change_street":
        return 0 if order["status"] == "open" else 5
    if order["status"] != "delivered":
        return 3
    return 4 if order["age"] > policy.return_days else 0


class ShopTools:
    """The tools of the shop."""

    state: State

    @tool
    async def check_code(self, name: str, code: StrictInt) -> str:
        """Whether a customer's code is right or wrong."""
        customers = self.state["customers"]
        if name.strip().lower() not in customers:
            raise ToolError(f"there is no customer {name!r}")
        return "right" if customers[name.strip().lower()]["code"] == code else "wrong"

    @tool
    async def show_order(self, order: StrictInt) -> str:
        """Facts of an order."""
        found = self._order(order)
        return (
            f"{found['item']} of {found['customer']}, {found['price']} dollars, {found['status']}, "
            f"{found['age']} days old, to {found['street']} on day {found['day']}"
        )

    @tool
    @consequential("write")
    async def cancel(self, order: StrictInt, refund: StrictInt) -> str:
        """Cancel an order, and pay a refund."""
        return self._end(order, "cancelled", refund)

    @tool
    @consequential("write")
    async def take_back(self, order: StrictInt, refund: StrictInt) -> str:
        """Take an order back, and pay a refund."""
        return self._end(order, "returned", refund)

    @tool
    @consequential("write")
    async def change_street(self, order: StrictInt, street: str) -> str:
        """Send an order to another street."""
        found = self._order(order)
        found["street"] = street.strip().lower()
        found["day"] += 2
        return f"changed: it comes on day {found['day']}"

    @tool
    @consequential("write")
    async def refuse(self, order: StrictInt, rule: StrictInt, price: StrictInt) -> str:
        """Note which rule forbids what is wished for an order, and the order's price."""
        self._order(order)
        self.state["refusals"][str(order)] = [rule, price]
        return "noted"

    def _order(self, order: int) -> dict[str, Any]:
        if str(order) not in self.state["orders"]:
            raise ToolError(f"there is no order {order}")
        found: dict[str, Any] = self.state["orders"][str(order)]
        return found

    def _end(self, order: int, status: Status, refund: int) -> str:
        found = self._order(order)
        if refund < 0:
            raise ToolError("a refund is 0 or more")
        found["status"] = status
        self.state["customers"][found["customer"]]["balance"] += refund
        return f"{status}, {refund} dollars paid"


class Shop(ShopTools):
    """The shop outside of an episode."""

    def __init__(self, state: State) -> None:
        """`state` is used as it is, and changed."""
        self.state = state

    def call(self, name: str, **arguments: Any) -> None:
        """Call a tool. Example: Shop(state).call("cancel", order=412, refund=30)."""
        with suppress(StopIteration):  # none of them waits for anything
            getattr(self, name)(**arguments).send(None)


NAMES = words_in(
    "ada ben cleo dana eli finn gus hana ivo jade kit lena max nora otto pia rosa sam tess udo "
    "vera walt yuri zoe"
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
"""Measured on the standard tasks: success of `random_actions`."""
COUNT = 1000


def made_tasks(count: int, short: bool, wishes: Sequence[WishKind]) -> TaskSet:
    """`count` tasks for each split; what is said in one is not said in the other."""

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
    Shop(after).call(decision.tool, **decision.arguments)
    data = {"state": state, "script": script}
    secret = {
        "call": [decision.tool, dict(decision.arguments)],
        "check": {"name": order["customer"], "code": given},
        "told": str(decision.told),
        "state": after,
    }
    rule = forbidden_by(policy, order, wish, honest)
    info = {"wish": wish.kind, "rule": rule, "order": wish.order}
    return Task(identity([prompt, data]), prompt, secret, data, info)


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
    """An order, a wish, and whether the user is who it claims to be; half are granted."""
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
