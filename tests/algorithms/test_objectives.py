"""Objectives against the formulas in plain Python, values and gradients; the divergences too."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.kl import DIVERGENCES
from turnwise.algorithms.objectives import OBJECTIVES, Inputs
from turnwise.algorithms.parts import OBJECTIVE

TOKENS = st.lists(
    st.tuples(st.floats(-3, -0.05), st.floats(-3, -0.05), st.floats(-2, 2)), min_size=1, max_size=6
)
"""(log-prob, old log-prob, advantage)"""


def clip(x: float, a: float, low: float, high: float, dual: float) -> float:
    value = max(-math.exp(x) * a, -min(max(math.exp(x), 1 - low), 1 + high) * a)
    return min(value, -dual * a) if a < 0 else value


def binary_kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


FORMULAS: dict[str, Callable[[float, float, float, dict[str, float]], float]] = {
    "clip": lambda new, old, a, n: clip(new - old, a, n["clip_low"], n["clip_high"], 3.0),
    "policy_gradient": lambda new, old, a, n: -math.exp(new - old) * a,
    "sapo": lambda new, old, a, n: (
        -4
        / (g := n["gate_positive"] if a > 0 else n["gate_negative"])
        / (1 + math.exp(-g * (math.exp(new - old) - 1)))
        * a
    ),
    "dppo_tv": lambda new, old, a, n: (
        0.0
        if (a > 0 and math.exp(new) - math.exp(old) > n["clip_high"])
        or (a <= 0 and math.exp(old) - math.exp(new) > n["clip_low"])
        else -math.exp(new - old) * a
    ),
    "dppo_kl": lambda new, old, a, n: (
        0.0
        if (new > old if a > 0 else new < old)
        and binary_kl(math.exp(old), math.exp(new)) > n["divergence"]
        else -math.exp(new - old) * a
    ),
    "squared": lambda new, old, a, n: (
        0.0
        if not -0.5 <= new - old <= 0.7
        else ((a - n["temperature"] * (new - old)) ** 2 - a**2) / (2 * n["temperature"])
    ),
}
SPECIAL = {"clip": {"dual_clip": 3.0}, "squared": {"window_low": 0.5, "window_high": 0.7}}


def numbers_of(name: str) -> dict[str, float]:
    defaults = {key: number.default for key, number in OBJECTIVE[name].numbers.items()}
    return defaults | SPECIAL.get(name, {})


def inputs(tokens: list[tuple[float, float, float]]) -> Inputs:
    columns = torch.tensor(tokens, dtype=torch.float64)
    logprob = columns[:, 0].clone().requires_grad_()
    return Inputs(logprob - columns[:, 1], columns[:, 2], logprob, columns[:, 1])


@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=80, deadline=None)
@given(tokens=TOKENS)
def test_values_and_gradients_match_the_formula(
    name: str, tokens: list[tuple[float, float, float]]
) -> None:
    numbers, given_inputs, step = numbers_of(name), inputs(tokens), 1e-6
    losses, _ = OBJECTIVES[name](given_inputs, **numbers)
    losses.sum().backward()
    assert given_inputs.logprob.grad is not None
    for index, (new, old, advantage) in enumerate(tokens):
        assert losses[index].item() == pytest.approx(
            FORMULAS[name](new, old, advantage, numbers), abs=1e-9
        )
        around = [FORMULAS[name](new + sign * step, old, advantage, numbers) for sign in (1, 0, -1)]
        left, right = (around[1] - around[2]) / step, (around[0] - around[1]) / step
        if left == pytest.approx(right, abs=1e-3):  # not at a kink
            assert given_inputs.logprob.grad[index].item() == pytest.approx(left, abs=2e-3)


@given(TOKENS)
def test_cispo_weighs_the_log_probability(tokens: list[tuple[float, float, float]]) -> None:
    given_inputs = inputs(tokens)
    losses, stopped = OBJECTIVES["cispo"](given_inputs, clip_low=1.0, clip_high=0.5)
    losses.sum().backward()
    assert given_inputs.logprob.grad is not None
    assert not stopped.any()
    for index, (new, old, advantage) in enumerate(tokens):
        weight = min(max(math.exp(new - old), 0.0), 1.5)
        assert losses[index].item() == pytest.approx(-weight * advantage * new)
        assert given_inputs.logprob.grad[index].item() == pytest.approx(-weight * advantage)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_on_policy_every_objective_has_the_gradient_of_reinforce(name: str) -> None:
    given_inputs = inputs([(-1.0, -1.0, 0.7), (-0.3, -0.3, -0.4)])
    losses, stopped = OBJECTIVES[name](given_inputs, **numbers_of(name))
    losses.sum().backward()
    assert given_inputs.logprob.grad is not None
    assert given_inputs.logprob.grad.tolist() == pytest.approx([-0.7, 0.4])
    assert not stopped.any()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_extreme_ratios_stay_finite(name: str) -> None:
    given_inputs = inputs([(-1e4, 0.0, 1.0), (0.0, -1e4, -1.0), (0.0, 0.0, 0.0)])
    losses, _ = OBJECTIVES[name](given_inputs, **numbers_of(name))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert given_inputs.logprob.grad is not None
    assert torch.isfinite(given_inputs.logprob.grad).all()


def test_divergences_by_enumeration() -> None:
    """Expected values, and which of them have the divergence's own gradient."""
    policy = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    other = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    logits = policy.log().requires_grad_()
    logprob = logits.log_softmax(-1)
    exact = (logprob.exp() * (logprob - other.log())).sum()
    (true_gradient,) = torch.autograd.grad(exact, logits)
    right_value, right_gradient = {"k1", "k3", "k3_plus"}, {"k2", "k3_plus"}
    for name, divergence in DIVERGENCES.items():
        logprob = logits.log_softmax(-1)
        estimate = (policy * divergence(logprob, other.log())).sum()
        (gradient,) = torch.autograd.grad(estimate, logits)
        same_value = estimate.item() == pytest.approx(exact.item())
        assert same_value is (name in right_value)
        same = np.allclose(gradient.numpy(), true_gradient.numpy())
        assert same is (name in right_gradient)
