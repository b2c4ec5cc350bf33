"""Agreement against cases computed by hand, and kappa's error against samples."""

import math

import pytest

from turnwise.evaluation.intervals import wilson
from turnwise_judges.agreement import agreement, ranking


def labels(
    both: int, only_judged: int, only_gold: int, neither: int
) -> tuple[list[bool], list[bool]]:
    """Labels with these counts of (judged, gold)."""
    counts = {
        (True, True): both,
        (True, False): only_judged,
        (False, True): only_gold,
        (False, False): neither,
    }
    pairs = [pair for pair, count in counts.items() for _ in range(count)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def test_kappa_by_hand() -> None:
    """50 of which 20 + 15 agree; the judge says yes 25 times, gold 30 times: po = 0.7 and
    pe = 0.5 * 0.6 + 0.5 * 0.4 = 0.5, so kappa = 0.2 / 0.5 = 0.4."""
    found = agreement(*labels(20, 5, 10, 15))
    assert found.accuracy == pytest.approx(0.7)
    assert found.accuracy_interval == wilson(35, 50)
    assert found.kappa == pytest.approx(0.4)
    agreeing = 0.4 * (0.5 - (0.5 + 0.6) * 0.3) ** 2 + 0.3 * (0.5 - (0.5 + 0.4) * 0.3) ** 2
    # (judged yes, gold no): gold's share of yes + the judge's of no; and the other way round
    apart = 0.3**2 * (0.1 * (0.6 + 0.5) ** 2 + 0.2 * (0.4 + 0.5) ** 2)
    rest = (0.7 * 0.5 - 2 * 0.5 + 0.7) ** 2
    error = math.sqrt((agreeing + apart - rest) / 50) / 0.5**2
    low, high = found.kappa_interval
    assert high - found.kappa == pytest.approx(1.959964 * error, rel=1e-6)
    assert found.kappa - low == pytest.approx(1.959964 * error, rel=1e-6)


def test_kappa_of_three_labels_by_hand() -> None:
    """9 labels: po = 6/9; judged 4 a, 3 b, 2 c; gold 3 of each: pe = 1/3; kappa = 1/2."""
    judged = ["a", "a", "a", "a", "b", "b", "b", "c", "c"]
    gold = ["a", "a", "b", "c", "a", "b", "b", "c", "c"]
    assert agreement(judged, gold).kappa == pytest.approx(0.5)
    assert agreement(judged, gold).accuracy == pytest.approx(6 / 9)


def test_the_ends() -> None:
    right = agreement(*labels(3, 0, 0, 5))
    assert (right.accuracy, right.kappa) == (1.0, 1.0)
    assert all(map(math.isnan, right.kappa_interval)), "no error was seen, which is not none"
    wrong = agreement(*labels(0, 4, 4, 0))
    assert (wrong.accuracy, wrong.kappa) == (0.0, -1.0)
    one_label = agreement(*labels(4, 0, 0, 0))
    assert one_label.accuracy == 1.0
    assert math.isnan(one_label.kappa), "nothing could disagree"
    one_sided = agreement(*labels(3, 3, 0, 0))
    assert one_sided.kappa == 0.0, "one that always says yes knows nothing"
    assert all(map(math.isnan, one_sided.kappa_interval))


def test_missing_judgements_are_counted_and_left_out() -> None:
    found = agreement([True, None, False, None], [True, True, False, False])
    assert (found.n, found.missing, found.accuracy, found.kappa) == (2, 2, 1.0, 1.0)
    nothing = agreement([None], [True])
    assert (nothing.n, nothing.missing) == (0, 1)
    assert math.isnan(nothing.accuracy)
    assert math.isnan(nothing.kappa)
    assert nothing.accuracy_interval == (0.0, 1.0)


def test_ranking() -> None:
    assert ranking([3, 2, 1], [True, True, False]) == 1.0
    assert ranking([1, 2, 3], [True, True, False]) == 0.0
    assert ranking([5, 5], [True, False]) == 0.5
    assert ranking([0.9, math.nan, 0.1], [True, True, False]) == 1.0
    assert math.isnan(ranking([1, 2], [True, True]))
