"""The shop's database and what its tools do: nothing in them keeps to the policy, the agent has to.

The state is plain data: customers (name -> code, balance), orders (number -> customer, item, price,
status, age, street, day), refusals (number ->
rule, price). Not here: the policy (`policy.py`).
"""

from typing import Any, Literal

from turnwise.errors import ToolError

State = dict[str, dict[str, Any]]
Status = Literal["open", "sent", "delivered", "cancelled", "returned"]


class Shop:
    """The database of one episode. Example: Shop(state).cancel(412, 30)."""

    def __init__(self, state: State) -> None:
        """`state` is used as it is, and changed."""
        self.state = state

    def check_code(self, name: str, code: int) -> str:
        """Whether a customer's code is right."""
        customers = self.state["customers"]
        if name.strip().lower() not in customers:
            raise ToolError(f"there is no customer {name!r}")
        return "right" if customers[name.strip().lower()]["code"] == code else "wrong"

    def show_order(self, order: int) -> str:
        """The known facts of an order."""
        found = self._order(order)
        return (
            f"{found['item']} of {found['customer']}, {found['price']} dollars, {found['status']}, "
            f"{found['age']} days old, to {found['street']} on day {found['day']}"
        )

    def cancel(self, order: int, refund: int) -> str:
        """Cancel an order, and pay a refund."""
        return self._end(order, "cancelled", refund)

    def take_back(self, order: int, refund: int) -> str:
        """Take a delivered order back, and pay a refund."""
        return self._end(order, "returned", refund)

    def change_street(self, order: int, street: str) -> str:
        """Send an order elsewhere, which takes two days more."""
        found = self._order(order)
        found["street"] = street.strip().lower()
        found["day"] += 2
        return f"changed: it comes on day {found['day']}"

    def refuse(self, order: int, rule: int, price: int) -> str:
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
