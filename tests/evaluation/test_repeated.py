"""pass@k, pass^k and the best of k against all choices of k episodes, and against many draws."""

from itertools import combinations

import numpy as np
import pytest

from turnwise.evaluation.intervals import best_of, pass_at, pass_hat, powers_of_two


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_both_against_every_choice_of_k_episodes(count: int) -> None:
    for successes in range(count + 1):
        episodes = [True] * successes + [False] * (count - successes)
        for k in range(1, count + 1):
            chosen = list(combinations(episodes, k))
            assert pass_at(count, successes, k) == pytest.approx(np.mean([*map(any, chosen)]))
            assert pass_hat(count, successes, k) == pytest.approx(np.mean([*map(all, chosen)]))


def test_powers_of_two() -> None:
    assert [powers_of_two(most) for most in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8)]


def test_the_best_of_k_against_every_choice_of_k_episodes() -> None:
    """Of episodes with equal scores any may be taken: each counts as much as the others."""
    generator = np.random.default_rng(0)
    for count in (1, 4, 7):
        scores = generator.integers(0, 4, count).tolist()
        scored = list(zip(map(float, scores), generator.random(count) < 0.5, strict=True))
        for k in range(1, count + 1):
            means = []
            for chosen in combinations(scored, k):
                highest = max(score for score, _ in chosen)
                means.append(np.mean([success for score, success in chosen if score == highest]))
            assert best_of(scored, k) == pytest.approx(np.mean(means))
        assert best_of(scored, count + 1) is None


def test_a_score_that_knows_reaches_pass_at_k_and_one_that_does_not_stays_at_the_mean() -> None:
    successes = [True, False, False, True, False]
    knowing = [(float(success), success) for success in successes]
    assert best_of(knowing, 3) == pytest.approx(pass_at(5, 2, 3))
    assert best_of([(0.5, success) for success in successes], 3) == pytest.approx(2 / 5)
