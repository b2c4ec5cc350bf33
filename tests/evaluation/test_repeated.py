"""pass@k and pass^k against all choices of k episodes, and against many draws."""

from itertools import combinations

import numpy as np
import pytest

from turnwise.evaluation.repeated import pass_at, pass_hat, powers_of_two


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_both_against_every_choice_of_k_episodes(count: int) -> None:
    for successes in range(count + 1):
        episodes = [True] * successes + [False] * (count - successes)
        for k in range(1, count + 1):
            chosen = list(combinations(episodes, k))
            assert pass_at(count, successes, k) == pytest.approx(np.mean([*map(any, chosen)]))
            assert pass_hat(count, successes, k) == pytest.approx(np.mean([*map(all, chosen)]))


def test_both_are_unbiased() -> None:
    """The mean over many tasks of one rate is the probability itself."""
    drawn = np.random.default_rng(0).binomial(8, 0.3, 40_000)
    at = np.mean([pass_at(8, int(c), 4) for c in drawn])
    hat = np.mean([pass_hat(8, int(c), 4) for c in drawn])
    assert at == pytest.approx(1 - 0.7**4, abs=5e-3)
    assert hat == pytest.approx(0.3**4, abs=5e-3)


def test_fewer_than_k_episodes_leave_both_undefined() -> None:
    assert pass_at(3, 3, 4) is None
    assert pass_hat(3, 3, 4) is None


def test_powers_of_two() -> None:
    assert [powers_of_two(most) for most in (1, 2, 6, 8)] == [
        (1,),
        (1, 2),
        (1, 2, 4),
        (1, 2, 4, 8),
    ]
