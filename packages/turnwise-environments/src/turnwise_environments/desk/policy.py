"""The policy of the desk, its document, and what follows from it for a wish.

Its two numbers differ from task to task, so that it has to be read. Not here: users (`tasks.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
        """The policy as the agent reads it."""
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
        """The policy in few words, for a small model: the rules that matter for such wishes."""
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
    """The policy's decision on a wish."""
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
