"""The Jensen-Shannon divergence: against entropies, with gradients, and its bounds."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise_algorithms.divergences import jensen_shannon


def two(seed: int, spread: float, size: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [3, size] in float64."""
    generator = np.random.default_rng(seed)
    logits = torch.from_numpy(spread * generator.normal(size=(2, 3, size)))
    return logits[0].requires_grad_(), logits[1]


def entropy(probabilities: torch.Tensor) -> torch.Tensor:
    return -(probabilities * probabilities.log()).sum(-1)


@given(st.integers(0, 2**32), st.floats(0.1, 5), st.floats(0.01, 0.99))
def test_it_is_what_mixing_adds_to_entropy(seed: int, spread: float, alpha: float) -> None:
    """H(mixture) less the mean of entropies; value and gradient with respect to the first."""
    first, second = two(seed, spread)
    found = jensen_shannon(first.log_softmax(-1), second.log_softmax(-1), alpha)
    p, q = first.softmax(-1), second.softmax(-1)
    mixed = entropy((1 - alpha) * p + alpha * q)
    expected = mixed - (1 - alpha) * entropy(p) - alpha * entropy(q)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)
    bound = -alpha * math.log(alpha) - (1 - alpha) * math.log(1 - alpha)
    assert ((found > -1e-12) & (found <= bound + 1e-12)).all()
    gradients = [
        torch.autograd.grad(x.sum(), first, retain_graph=True)[0] for x in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


@given(st.integers(0, 2**32))
def test_it_is_symmetric_at_one_half_and_zero_for_equals(seed: int) -> None:
    first, second = (logits.log_softmax(-1) for logits in two(seed, 1.0))
    there, back = jensen_shannon(first, second, 0.5), jensen_shannon(second, first, 0.5)
    torch.testing.assert_close(there, back)
    assert jensen_shannon(first, first, 0.3).abs().max() < 1e-12
