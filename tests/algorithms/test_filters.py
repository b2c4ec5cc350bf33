"""Which groups and which trajectories are trained on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.declared import functions
from tests.algorithms.trained_tokens import trained_tokens
from turnwise.algorithms import make_algorithm
from turnwise.algorithms.filters import (
    TrajectoryFacts,
    TurnFacts,
    clip_cov,
    every,
    kl_cov,
    overlong,
    top_spread,
    top_variance,
    unequal,
)
from turnwise.algorithms.losses import TrainedTokens, policy_loss

TRAJECTORY_FILTERS = functions("trajectory_filter")


def rewards(*groups: list[float]) -> list[np.ndarray]:
    return [np.array(group, np.float64) for group in groups]


BATCH = rewards([1, 1], [0, 1], [0, 0.2], [], [0.5], [0, 0.4])


def test_every_group_or_those_that_differ() -> None:
    assert every(BATCH) == [True] * 6
    assert unequal(BATCH) == [False, True, True, False, False, True]
    assert top_spread(rewards([0, 1], [1, 0]), 0.5) == [True, False], "of equals the earlier"


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (top_spread, {0.0: [1], 0.25: [1, 5], 0.5: [1, 2, 5], 1.0: [1, 2, 5]}),
        (top_variance, {0.5: [1], 0.9: [1, 5], 0.99: [1, 2, 5], 0.0: []}),
    ],
)
def test_what_varies_most_is_kept(
    keep: Callable[..., list[bool]], kept: dict[float, list[int]]
) -> None:
    """By spread two of six at 25%, those that are all equal never; by variances 0.25, 0.01 and
    0.04, which are shares 0.833, 0.033 and 0.133."""
    for share, places in kept.items():
        assert np.flatnonzero(keep(BATCH, share)).tolist() == places
    assert keep([], 0.9) == []
    assert keep(rewards([1, 1], [0, 0]), 0.9) == [False, False]


ACTED, VOID = TurnFacts(acted=True), TurnFacts(acted=False)
FAILED, REPEATED = TurnFacts(True, failed=True), TurnFacts(True, repeated=True)


@pytest.mark.parametrize(
    ("facts", "keepers"),
    [
        (
            TrajectoryFacts(False, [ACTED, ACTED]),
            {"none", "overlong", "void_turns", "void_results"},
        ),
        (TrajectoryFacts(True, [ACTED, ACTED]), {"none", "void_turns", "void_results"}),
        (TrajectoryFacts(False, [ACTED, VOID, ACTED]), {"none", "overlong"}),
        (TrajectoryFacts(False, [ACTED, FAILED, ACTED]), {"none", "overlong", "void_turns"}),
        (TrajectoryFacts(False, [ACTED, REPEATED]), {"none", "overlong", "void_turns"}),
        (TrajectoryFacts(True, [VOID]), {"none"}),
        (TrajectoryFacts(True, []), {"none", "void_turns", "void_results"}),
    ],
)
def test_which_filter_keeps_a_trajectory(facts: TrajectoryFacts, keepers: set[str]) -> None:
    assert {name for name, keep in TRAJECTORY_FILTERS.items() if keep(facts)} == keepers


def printed(length: int, longest: int, cache: int) -> float:
    """R_length(y) for L_max = longest and L_cache = cache, the budget being L_max."""
    if length <= longest - cache:
        return 0.0
    if length <= longest:
        return ((longest - cache) - length) / cache
    return -1.0


@given(
    lengths=st.lists(st.integers(0, 3000), max_size=8),
    budget=st.integers(16, 2000),
    cache=st.integers(1, 16),
    weight=st.floats(0, 5),
)
def test_overlong_is_the_printed_equation(
    lengths: list[int], budget: int, cache: int, weight: float
) -> None:
    penalties = overlong(np.array(lengths, np.int64), budget, cache / budget, weight)
    expected = [-weight * printed(length, budget, cache) for length in lengths]
    np.testing.assert_allclose(penalties, expected, atol=1e-9)


TOKEN_FILTERS = functions("token_filter")

PAIRS = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(-6, -0.01)), min_size=1, max_size=40, unique=True
)
"""(advantage, old log-probability)"""


def ranked(pairs: list[tuple[float, float]]) -> list[tuple[float, int]]:
    """(covariance, place), the largest first, in plain Python."""
    advantage = sum(a for a, _ in pairs) / len(pairs)
    logprob = sum(p for _, p in pairs) / len(pairs)
    return sorted((-(a - advantage) * (p - logprob), place) for place, (a, p) in enumerate(pairs))


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, np.float64)
    return array[:, 0], array[:, 1]


@pytest.mark.long
@given(pairs=PAIRS, share=st.floats(0, 1))
def test_kl_cov_penalises_the_largest_covariances(
    pairs: list[tuple[float, float]], share: float
) -> None:
    factor, penalty = kl_cov(*columns(pairs), share, 0.3)
    assert (factor == 1).all()
    count = max(1, int(share * len(pairs)))
    assert set(np.unique(penalty)) <= {0.0, 0.3}
    assert (penalty > 0).sum() == count
    order = ranked(pairs)
    least = -order[count - 1][0]
    for negative, place in order:
        if abs(-negative - least) > 1e-9:  # equal up to rounding: either may be chosen
            assert (penalty[place] > 0) is np.bool_(-negative > least)


@pytest.mark.long
@given(pairs=PAIRS, share=st.floats(0, 1))
def test_clip_cov_takes_the_largest_within_the_band(
    pairs: list[tuple[float, float]], share: float
) -> None:
    factor, penalty = clip_cov(*columns(pairs), share, 0.2, 2.0)
    assert not penalty.any()
    inside = [(-negative, place) for negative, place in ranked(pairs) if 0.2 < -negative < 2.0]
    taken = np.flatnonzero(factor == 0)
    assert len(taken) == min(len(inside), max(1, int(share * len(pairs))))
    covariance = {place: number for number, place in inside}
    assert set(taken) <= set(covariance)
    left = [number for place, number in covariance.items() if place not in taken]
    assert all(covariance[place] >= number - 1e-9 for place in taken for number in left)


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_degenerate_batches(name: str) -> None:
    """No token; one token; equal advantages, of covariance 0: nothing is in the band, and there is
    always one that is penalised."""
    numbers = make_algorithm(name, {}).numbers_of("token_filter")
    empty = TOKEN_FILTERS[name](np.zeros(0), np.zeros(0), **numbers)
    assert [part.shape for part in empty] == [(0,), (0,)]
    for advantages in (np.ones(1), np.ones(5)):
        logprobs = -np.arange(1.0, len(advantages) + 1)
        factor, penalty = TOKEN_FILTERS[name](advantages, logprobs, **numbers)
        assert (factor == 1).all()
        assert penalty.tolist() == [float(name == "kl_cov")] + [0.0] * (len(advantages) - 1)


def tokens(factor: list[float], penalty: list[float]) -> TrainedTokens:
    old = torch.tensor([-1.0, -0.5, -2.0], dtype=torch.float64)
    return trained_tokens(
        (old + torch.tensor([0.3, -0.2, 0.1])).requires_grad_(),
        old,
        advantage=torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64),
        weight=torch.full((3,), 1 / 3, dtype=torch.float64),
        loss_scale=torch.tensor(factor, dtype=torch.float64),
        kl_penalty=torch.tensor(penalty, dtype=torch.float64),
    )


def test_a_token_taken_out_has_no_gradient_and_stays_in_the_denominator() -> None:
    algorithm = make_algorithm("clip_cov", {"clip_low": 9, "clip_high": 9})
    treated = tokens([1, 0, 1], [0, 0, 0])
    result = policy_loss(treated, algorithm)
    result.losses.sum().backward()
    ratio = np.exp([0.3, -0.2, 0.1])
    expected = -ratio * [0.5, 0.0, 2.0] / 3
    np.testing.assert_allclose(treated.logprob.grad.numpy(), expected, rtol=1e-6)
    assert result.sums["policy/filtered_fraction"] == 1


def test_a_penalised_token_is_drawn_back_to_the_old_policy() -> None:
    """KL(old || policy) by r - 1 - log r, whose gradient is r - 1."""
    algorithm = make_algorithm("kl_cov", {})
    treated = tokens([1, 1, 1], [0, 0.7, 0.7])
    result = policy_loss(treated, algorithm)
    result.losses.sum().backward()
    ratio, penalty = np.exp([0.3, -0.2, 0.1]), np.array([0, 0.7, 0.7])
    losses = -ratio * [0.5, -1.0, 2.0] + penalty * (ratio - 1 - np.log(ratio))
    np.testing.assert_allclose(result.losses.detach().numpy(), losses / 3, rtol=1e-6)
    gradient = (-ratio * [0.5, -1.0, 2.0] + penalty * (ratio - 1)) / 3
    np.testing.assert_allclose(treated.logprob.grad.numpy(), gradient, rtol=1e-6)


def test_a_filter_without_its_numbers_is_a_bug() -> None:
    plain = replace(tokens([1, 1, 1], [0, 0, 0]), loss_scale=None)
    with pytest.raises(ValueError, match="nothing was filtered"):
        policy_loss(plain, make_algorithm("kl_cov", {}))
