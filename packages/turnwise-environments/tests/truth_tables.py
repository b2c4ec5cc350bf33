"""A second judge of propositional logic: truth tables."""

import itertools
from collections.abc import Mapping, Sequence

from turnwise_environments.rewards.proofs import Formula


def value(formula: Formula, world: Mapping[str, bool]) -> bool:
    """Whether a formula is true in a world."""
    match formula:
        case ("false",):
            return False
        case (name,):
            return world[name]
        case ("~", inner):
            return not value(inner, world)
        case ("&", one, other):
            return value(one, world) and value(other, world)
        case ("|", one, other):
            return value(one, world) or value(other, world)
        case (_, one, other):
            return not value(one, world) or value(other, world)
    raise AssertionError(formula)


def follows(premises: Sequence[Formula], conclusion: Formula) -> bool:
    """By the truth table over p, q, r and s."""
    worlds = (dict(zip("pqrs", row, strict=True)) for row in itertools.product([0, 1], repeat=4))
    return all(
        value(conclusion, world)
        for world in ({name: bool(one) for name, one in row.items()} for row in worlds)
        if all(value(one, world) for one in premises)
    )
