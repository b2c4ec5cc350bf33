"""Objectives against the formulas in plain Python, values and gradients; the divergences too."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algorithms.declared import defaults, functions, parts
from turnwise.algorithms.objectives import Inputs

DIVERGENCES = functions("divergence")
OBJECTIVES = functions("objective")
OBJECTIVE = parts("objective")

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
        and binary_kl(math.exp(old), math.exp(new)) > n["trust_region"]
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
    return defaults(OBJECTIVE[name]) | SPECIAL.get(name, {})


def inputs(tokens: list[tuple[float, float, float]]) -> Inputs:
    columns = torch.tensor(tokens, dtype=torch.float64)
    logprob = columns[:, 0].clone().requires_grad_()
    sequence = torch.arange(len(tokens))
    return Inputs(logprob - columns[:, 1], columns[:, 2], logprob, columns[:, 1], sequence)


@pytest.mark.long
@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=80, deadline=None)
@given(tokens=TOKENS)
def test_values_and_gradients_match_the_formula(
    name: str, tokens: list[tuple[float, float, float]]
) -> None:
    numbers, given_inputs, step = numbers_of(name), inputs(tokens), 1e-6
    losses, _ = OBJECTIVES[name](given_inputs, **numbers)
    losses.sum().backward()
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
    assert not stopped.any()
    for index, (new, old, advantage) in enumerate(tokens):
        weight = min(max(math.exp(new - old), 0.0), 1.5)
        assert losses[index].item() == pytest.approx(-weight * advantage * new)
        assert given_inputs.logprob.grad[index].item() == pytest.approx(-weight * advantage)


def geometric_mean(
    new: np.ndarray, old: np.ndarray, advantage: float, low: float, high: float
) -> float:
    """A sequence's objective as GMPO's paper has it: ratios to the power of the advantage's sign,
    the smaller of each and its clipped value, their product to the power of sign over length."""
    sign = math.copysign(1.0, advantage)
    powers = np.exp(new - old) ** sign
    bounds = sorted((math.exp(-low) ** sign, math.exp(high) ** sign))
    smaller = np.minimum(powers, np.clip(powers, *bounds))
    return float(np.prod(smaller) ** (sign / len(new)) * advantage)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(TOKENS, st.floats(-2, 2)), min_size=1, max_size=4),
    low=st.floats(0.1, 1),
    high=st.floats(0.1, 1),
)
def test_gmpo_is_the_geometric_mean_of_each_sequence(
    rows: list[tuple[list[tuple[float, float, float]], float]], low: float, high: float
) -> None:
    """Value and gradient of the mean over sequences; the gradient by differences in float64."""
    tokens = [(new, old, shared) for row, shared in rows for new, old, _ in row]
    sequence = torch.tensor([index for index, (row, _) in enumerate(rows) for _ in row])
    given_inputs = replace(inputs(tokens), sequence=sequence)
    losses, stopped = OBJECTIVES["gmpo"](given_inputs, window_low=low, window_high=high)
    lengths = torch.bincount(sequence)[sequence]
    (losses / lengths / len(rows)).sum().backward()
    gradient, step, place = given_inputs.logprob.grad, 1e-6, 0
    for row, advantage in rows:
        new, old = (np.array([token[column] for token in row]) for column in (0, 1))
        value = geometric_mean(new, old, advantage, low, high)
        assert losses[place].item() == pytest.approx(-value, abs=1e-9)
        for index in range(len(row)):
            x = new[index] - old[index]
            gone = x > high if advantage > 0 else x < -low
            assert stopped[place].item() is (bool(gone) and advantage != 0)
            moves = [new + sign * step * (np.arange(len(row)) == index) for sign in (1, -1)]
            ends = [geometric_mean(moved, old, advantage, low, high) for moved in moves]
            if min(abs(x - high), abs(x + low)) > 1e-5:  # not at a kink
                expected = -(ends[0] - ends[1]) / (2 * step) / len(rows)
                assert gradient[place].item() == pytest.approx(expected, abs=1e-6)
            place += 1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_on_policy_every_objective_has_the_gradient_of_reinforce(name: str) -> None:
    """Of each token's own advantage, also where tokens of one sequence have several."""
    tokens = [(-1.0, -1.0, 0.7), (-0.3, -0.3, -0.4)]
    given_inputs = replace(inputs(tokens), sequence=torch.tensor([0, 0]))
    losses, stopped = OBJECTIVES[name](given_inputs, **numbers_of(name))
    losses.sum().backward()
    assert given_inputs.logprob.grad.tolist() == pytest.approx([-0.7, 0.4])
    assert not stopped.any()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_extreme_ratios_stay_finite(name: str) -> None:
    given_inputs = inputs([(-1e4, 0.0, 1.0), (0.0, -1e4, -1.0), (0.0, 0.0, 0.0)])
    losses, _ = OBJECTIVES[name](given_inputs, **numbers_of(name))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(given_inputs.logprob.grad).all()


@pytest.mark.parametrize(
    ("sampler", "right_value", "right_gradient"),
    [
        ([0.7, 0.2, 0.1], {"k3", "k3_plus", "unbiased"}, {"k2", "k3_plus", "unbiased"}),
        ([0.5, 0.1, 0.4], {"unbiased"}, {"unbiased"}),
    ],
    ids=["own samples", "an older policy's"],
)
def test_divergences_by_enumeration(
    sampler: list[float], right_value: set[str], right_gradient: set[str]
) -> None:
    """Expected values, and which of them have the divergence's own gradient."""
    old = torch.tensor(sampler, dtype=torch.float64)
    other = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    logits = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log().requires_grad_()
    logprob = logits.log_softmax(-1)
    exact = (logprob.exp() * (logprob - other.log())).sum()
    (true_gradient,) = torch.autograd.grad(exact, logits)
    for name, divergence in DIVERGENCES.items():
        logprob = logits.log_softmax(-1)
        estimate = (old * divergence(logprob, other.log(), old.log())).sum()
        (gradient,) = torch.autograd.grad(estimate, logits)
        same_value = estimate.item() == pytest.approx(exact.item())
        assert same_value is (name in right_value)
        assert np.allclose(gradient.numpy(), true_gradient.numpy()) is (name in right_gradient)


def test_kimi_k2_squares_the_log_ratio_of_the_sequence() -> None:
    """Kimi K2 (arXiv 2507.20534), after Kimi k1.5 (arXiv 2501.12599), equation 3: the gradient of
    (A - tau log(pi(y) / pi_old(y)))^2 / (2 tau), y a sequence; sequences of three tokens and of
    two."""
    log_ratios = np.array([0.3, -0.1, 0.2, -0.5, 0.1])
    sequence, advantages = np.array([0, 0, 0, 1, 1]), np.array([0.75, 0.75, 0.75, -0.25, -0.25])
    logprob = torch.tensor(log_ratios, requires_grad=True)
    losses, gone = OBJECTIVES["sequence_squared"](
        Inputs(
            log_ratio=logprob - torch.zeros(5),
            advantage=torch.tensor(advantages),
            logprob=logprob,
            old_logprob=torch.zeros(5),
            sequence=torch.tensor(sequence),
        ),
        temperature=0.4,
    )
    losses.sum().backward()
    sums = np.array([0.4, -0.4])
    value = -0.75 * 0.4 + 0.4 * 0.4**2 / 2 - 0.25 * 0.4 + 0.4 * 0.4**2 / 2
    assert losses.sum().item() == pytest.approx(value)
    expected = -advantages + 0.4 * sums[sequence]
    np.testing.assert_allclose(logprob.grad.numpy(), expected, atol=1e-12)
    assert not gone.any()
