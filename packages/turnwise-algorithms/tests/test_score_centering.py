"""Score centering, against sums over a small vocabulary in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.objectives import Inputs
from turnwise_algorithms.score_centering import centred, expected

LOGITS = st.lists(st.floats(-3, 3), min_size=4, max_size=4)


def shares(logits: list[float]) -> list[float]:
    weights = [math.exp(one) for one in logits]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (0.5, 2.0)])
@given(own=LOGITS, theirs=LOGITS, advantage=st.floats(-2, 2))
def test_the_gradient_has_mean_0_over_what_the_sampler_draws(
    low: float, high: float, own: list[float], theirs: list[float], advantage: float
) -> None:
    """One token: the objective's gradient for each that could have been drawn, and the term's, by
    d log p_v / d logit_u = [u = v] - p_u."""
    p, q = shares(own), shares(theirs)
    weights = [min(max(a / b, 1 - low), 1 + high) for a, b in zip(p, q, strict=True)]
    mean = [
        sum(q[v] * weights[v] * ((u == v) - p[u]) for v in range(4)) * advantage for u in range(4)
    ]
    sampler, found = torch.tensor(theirs, dtype=torch.float64).log_softmax(-1), []
    for drawn in range(4):
        logits = torch.tensor(own, dtype=torch.float64, requires_grad=True)
        policy = logits.log_softmax(-1)
        ratio = policy[drawn : drawn + 1] - sampler[drawn]
        given_inputs = Inputs(
            ratio,
            torch.tensor([advantage], dtype=torch.float64),
            policy[drawn : drawn + 1],
            sampler[drawn : drawn + 1],
            torch.zeros(1, dtype=torch.long),
        )
        losses, _ = centred(given_inputs, clip_low=low, clip_high=high)
        term = advantage * expected(policy[None], sampler[None], low, high)
        (of_term,) = torch.autograd.grad(term.sum(), logits, retain_graph=True)
        assert of_term.tolist() == pytest.approx(mean, abs=1e-9)
        found.append(torch.autograd.grad((losses + term).sum(), logits)[0] * q[drawn])
    assert torch.stack(found).sum(0).tolist() == pytest.approx([0.0] * 4, abs=1e-9)
