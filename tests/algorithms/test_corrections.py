"""Off-policy weights against the definitions, token by token in plain Python."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algorithms.declared import defaults, functions, parts
from turnwise.algorithms.corrections import Staleness

CORRECTIONS = functions("correction")
CORRECTION = parts("correction")

Rows = list[list[tuple[float, float, float]]]
SMALL = st.floats(-1, 1, allow_subnormal=False)  # the half of the smallest subnormal is 0
TOKEN = st.tuples(st.floats(-2, 2), SMALL, SMALL)
SEQUENCES = st.lists(st.lists(TOKEN, min_size=1, max_size=4), min_size=1, max_size=4)
"""(log rho, advantage, log ratio) of each token."""


def by_hand(
    name: str, row: list[tuple[float, float, float]], numbers: dict[str, float]
) -> list[float]:
    rho = [math.exp(token[0]) for token in row]
    product = math.exp(sum(token[0] for token in row))
    left = sum(-token[0] - token[2] for token in row) / len(row)

    def inside(value: float) -> bool:
        return numbers["rho_low"] <= value <= numbers["rho_high"]

    match name:
        case "truncated":
            return [min(value, numbers["cap"]) for value in rho]
        case "sequence_truncated":
            return [min(product, numbers["cap"])] * len(row)
        case "masked":
            return [value if inside(value) else 0.0 for value in rho]
        case "geometric":
            return [float(inside(product ** (1 / len(row))))] * len(row)
        case "one_sided":
            bad = sum(token[1] for token in row) < 0
            return [float(not (bad and left > numbers["drift"]))] * len(row)
    return [1.0] * len(row)


def staleness(rows: Rows) -> Staleness:
    tokens = torch.tensor([token for row in rows for token in row], dtype=torch.float64)
    return Staleness(
        log_rho=tokens[:, 0],
        sequence=torch.tensor(np.repeat(np.arange(len(rows)), [len(row) for row in rows])),
        advantage=tokens[:, 1],
        log_ratio=tokens[:, 2],
    )


@pytest.mark.parametrize("name", CORRECTIONS)
@settings(max_examples=30, deadline=None)
@given(rows=SEQUENCES)
def test_weights_are_what_is_defined(name: str, rows: Rows) -> None:
    numbers = defaults(CORRECTION[name])
    found = CORRECTIONS[name](staleness(rows), **numbers).tolist()
    expected = [weight for row in rows for weight in by_hand(name, row, numbers)]
    assert found == pytest.approx(expected)


def test_long_trajectories_are_not_rejected_for_their_length() -> None:
    """A thousand tokens, each 0.5% off: the product is 147, the geometric mean 1.005."""
    rows = [[(0.005, 1.0, 0.0)] * 1000]
    assert CORRECTIONS["geometric"](staleness(rows), rho_low=0.99, rho_high=1.01).min() == 1
    assert CORRECTIONS["sequence_truncated"](staleness(rows), cap=1e9).max() > 100


def test_extreme_ratios_stay_finite_and_nothing_is_nothing() -> None:
    nothing, nobody = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    for part in CORRECTION.values():
        numbers = defaults(part)
        assert torch.isfinite(part.function(staleness([[(1e4, 1, 1)]]), **numbers)).all()
        assert part.function(Staleness(nothing, nobody, nothing, nothing), **numbers).shape == (0,)
