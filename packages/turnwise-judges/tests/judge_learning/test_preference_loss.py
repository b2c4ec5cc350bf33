"""Direct preference optimisation against the formula in float64, values and gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise_judges.preferences.loss import dpo

PAIRS = st.lists(st.tuples(st.floats(-30, 30), st.floats(-30, 30)), min_size=1, max_size=6)


@given(pairs=PAIRS, beta=st.floats(0.01, 2))
def test_values_and_gradients_match_the_formula(
    pairs: list[tuple[float, float]], beta: float
) -> None:
    better, worse = (torch.tensor(c, dtype=torch.float64) for c in zip(*pairs, strict=True))
    better.requires_grad_()
    worse.requires_grad_()
    losses, margins = dpo(better, worse, beta)
    losses.sum().backward()
    assert better.grad is not None
    assert worse.grad is not None
    for index, (up, down) in enumerate(pairs):
        margin = beta * (up - down)
        assert margins[index].item() == pytest.approx(margin)
        assert losses[index].item() == pytest.approx(math.log1p(math.exp(-margin)))
        slope = -beta / (1 + math.exp(margin))
        assert better.grad[index].item() == pytest.approx(slope, abs=1e-12)
        assert worse.grad[index].item() == pytest.approx(-slope, abs=1e-12)


def test_extreme_pairs_stay_finite() -> None:
    better = torch.tensor([-1e4, 1e4], requires_grad=True)
    losses, _ = dpo(better, torch.zeros(2), 1.0)
    losses.sum().backward()
    assert losses.tolist() == [1e4, 0.0]
    assert better.grad is not None
    assert better.grad.tolist() == [-1.0, 0.0]
