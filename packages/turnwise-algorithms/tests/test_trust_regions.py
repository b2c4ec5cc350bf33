"""Trust regions with two sides, against their formulas in plain Python."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.objectives import Inputs
from turnwise_algorithms.trust_regions import ipo, kpop

TOKENS = st.lists(
    st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(-2, 2)), min_size=1
)
"""(probability, old probability, advantage)"""


def gap(new: float, old: float) -> float:
    return abs(new - old)


def divergence(new: float, old: float) -> float:
    forth = new * math.log(new / old) + (1 - new) * math.log((1 - new) / (1 - old))
    back = old * math.log(old / new) + (1 - old) * math.log((1 - old) / (1 - new))
    return max(forth, back)


@pytest.mark.parametrize(("objective", "distance"), [(ipo, gap), (kpop, divergence)])
@given(tokens=TOKENS, region=st.floats(0.01, 0.5))
def test_a_token_is_out_whatever_its_advantage(
    objective: Any, distance: Any, tokens: list[tuple[float, float, float]], region: float
) -> None:
    new, old, advantage = torch.tensor(tokens, dtype=torch.float64).T
    logprob = new.log().requires_grad_()
    given_inputs = Inputs(
        logprob - old.log(), advantage, logprob, old.log(), torch.arange(len(tokens))
    )
    losses, gone = objective(given_inputs, trust_region=region)
    losses.sum().backward()
    assert logprob.grad is not None
    for place, (p, q, own) in enumerate(tokens):
        if distance(p, q) == pytest.approx(region, abs=1e-9):
            continue
        expected = 0.0 if distance(p, q) > region else -p / q * own
        assert gone[place].item() is (distance(p, q) > region)
        assert losses[place].item() == pytest.approx(expected)
        assert logprob.grad[place].item() == pytest.approx(expected)
