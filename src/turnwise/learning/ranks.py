"""Processes that make updates together: the collective operations that a learner asks of them.

Each rank has a part of the rows and a part of each weight (adapters are whole), and makes as many
passes as the others, since every pass gathers weights from all of them. `ALONE` is the one process
of a learner without others. `turnwise_cluster` starts ranks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from torch import Tensor, dtype, nn

from turnwise.forward.packing import Slicing

Row = TypeVar("Row")
Value = TypeVar("Value")
Compute = Callable[..., Any]
"""Calls its first argument, a function, with a model and the other arguments."""


class Ranks(Protocol):
    """One rank's view of all. Every rank calls all methods, in one order; properties are own."""

    @property
    def rank(self) -> int:
        """The place of this process, from 0."""

    @property
    def count(self) -> int:
        """The number of processes, 1 or more."""

    @property
    def slicing(self) -> Slicing | None:
        """The ranks that compute each row together, a slice each; None where each has its own."""

    def gather(self, value: Value) -> list[Value]:
        """The values that the ranks give, in order, on all of them."""

    def shard(self, model: nn.Module) -> Compute:
        """Give all ranks the weights of rank 0, and leave each a part of every one, in float32 if
        trained; adapters and the few weights of another type stay whole. The model then computes
        only through what is returned, which gathers weights layer by layer."""

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Add up undivided weights' gradients over all ranks, in place; others are sums."""

    def counts(self, weight: Tensor) -> bool:
        """Whether this rank's part of a weight counts in a sum: of an undivided one on one rank."""

    def dtype(self, weight: Tensor) -> dtype:
        """The type that the model computes with a weight in; parts may be float32 masters."""

    def local(self, weight: Tensor) -> Tensor:
        """This rank's part of a weight or its gradient, in the same memory."""

    def divided(self, local: Tensor, weight: Tensor) -> Tensor:
        """The tensor of which this is the rank's part, divided as a weight; nothing waits."""

    def whole(self, weight: Tensor) -> Tensor:
        """Put together what the ranks hold of a tensor, in the type that the model computes in."""


class Alone:
    """A learner's only process: it has all rows and whole weights."""

    rank = 0
    count = 1
    slicing = None

    def gather(self, value: Value) -> list[Value]:
        return [value]

    def shard(self, model: nn.Module) -> Compute:
        return lambda function, *arguments: function(model, *arguments)

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """See Ranks."""

    def counts(self, weight: Tensor) -> bool:
        return True

    def dtype(self, weight: Tensor) -> dtype:
        return weight.dtype

    def local(self, weight: Tensor) -> Tensor:
        return weight

    def divided(self, local: Tensor, weight: Tensor) -> Tensor:
        return local

    def whole(self, weight: Tensor) -> Tensor:
        return weight


ALONE = Alone()


def is_leader(ranks: Ranks) -> bool:
    """Whether this rank is the one that counts, of those that compute rows together."""
    return ranks.slicing is None or ranks.slicing.rank == 0


def partition(costs: Sequence[int], count: int) -> list[list[int]]:
    """Deal the places of rows to `count` ranks, the dearest first, each to the rank that has least;
    a rank's places are in order.

    >>> partition([5, 1, 1, 4, 2], 2)
    [[0, 1, 2], [3, 4]]
    """
    hands: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    # Longest first is within a third of the best division (Graham 1969). Ties go to the lower rank,
    # so that all ranks, each by itself, deal alike.
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        least = loads.index(min(loads))
        hands[least].append(place)
        loads[least] += costs[place]
    return [sorted(hand) for hand in hands]


def own_batches(
    ranks: Ranks,
    rows: Sequence[Row],
    cost: Callable[[Row], int],
    cut: Callable[[list[Row]], Iterable[list[Row]]],
) -> list[tuple[list[Row], bool]]:
    """Cut this rank's rows into as many micro-batches as the rank with most has; ranks that compute
    rows together have the same. Each comes with whether it counts: False for the cheapest of all
    rows, without weight, where a rank has none left."""
    slices = 1 if ranks.slicing is None else ranks.slicing.count
    # Ranks that compute rows together are neighbours, and have one hand.
    hands = partition([cost(row) for row in rows], ranks.count // slices)
    cuts = [list(cut([rows[place] for place in hand])) for hand in hands]
    own = cuts[ranks.rank // slices]
    missing = range(max(map(len, cuts)) - len(own))
    return [(batch, True) for batch in own] + [([min(rows, key=cost)], False) for _ in missing]
