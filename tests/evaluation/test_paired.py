"""Paired comparisons by hand, by enumeration, and by simulation."""

import math
from itertools import product

import numpy as np
import pytest

from turnwise.errors import DataError
from turnwise.evaluation.paired import (
    Comparison,
    Episode,
    Key,
    Played,
    compare,
    compare_all,
    difference,
    holm,
    mcnemar,
)


def played(name: str, *tasks: str, environment: str = "e 1, data 0", prompt: str = "?") -> Played:
    """Episodes of tasks: s is a success, f a failure, ? is ungraded."""
    graded = {"s": True, "f": False, "?": None}
    episodes = {
        Key(f"t{number}", episode): Episode(graded[letter], 100 * number + episode, prompt)
        for number, letters in enumerate(tasks)
        for episode, letter in enumerate(letters)
    }
    return Played(name, environment, episodes)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 5, 6, 9])
def test_mcnemar_against_all_ways_to_toss_coins(count: int) -> None:
    tosses = [sum(toss) for toss in product((0, 1), repeat=count)]
    for heads in range(count + 1):
        far = abs(heads - count / 2)
        as_far = np.mean([abs(toss - count / 2) >= far for toss in tosses])
        assert mcnemar(heads, count - heads) == pytest.approx(as_far)
    assert mcnemar(0, 0) == 1
    assert mcnemar(3000, 4000) < 1e-30


def test_holm_rejects_what_the_step_down_rule_rejects() -> None:
    """The rule as Holm states it: the smallest p against 5% / n, the next against 5% / (n - 1), …
    until one is not small enough."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        found = (generator.random(5) * generator.choice([0.02, 1], 5)).tolist()
        order, rejected = np.argsort(found), set()
        for rank, place in enumerate(order):
            if found[place] > 0.05 / (5 - rank):
                break
            rejected.add(place)
        assert {place for place, p in enumerate(holm(found)) if p <= 0.05} == rejected
    assert holm([]) == []


def test_one_pair_a_task_is_bonett_and_price() -> None:
    """p12' - p21' with one more pair either way, and the standard error of their paper."""
    only_first, only_second, count = 4, 15, 60
    one, two = (only_second + 1) / (count + 2), (only_first + 1) / (count + 2)
    error = math.sqrt((one + two - (one - two) ** 2) / (count + 2))
    sums = [1] * only_second + [-1] * only_first + [0] * (count - 19)
    found = difference(sums, np.ones(count))
    assert found.mean == pytest.approx(11 / 60)
    assert found.centre == pytest.approx(one - two)
    assert found.error == pytest.approx(error, rel=0.01)  # theirs divides by n, ours by n - 1


def test_a_clustered_difference_is_miller_s() -> None:
    """His sum over all pairs of episodes of a task, without what is added for few tasks."""
    generator = np.random.default_rng(3)
    drawn = [generator.integers(-1, 2, generator.integers(1, 5)) for _ in range(3000)]
    flat = np.concatenate(drawn)
    squares = sum(
        (one - flat.mean()) * (two - flat.mean()) for task in drawn for one in task for two in task
    )
    found = difference([task.sum() for task in drawn], [len(task) for task in drawn])
    assert found.error == pytest.approx(math.sqrt(squares) / len(flat), rel=2e-3)


def test_a_comparison_by_hand() -> None:
    first = played("a", *"sssffffff?")
    second = played("b", *"ssfsssssss")
    found = compare(first, second)
    assert (found.tasks, found.pairs, found.left_out) == (9, 9, 1)
    assert (found.only_first, found.only_second) == (1, 6)
    assert found.difference == pytest.approx(5 / 9)
    assert (found.success_first, found.success_second) == (3 / 9, 8 / 9)
    assert found.p == mcnemar(1, 6) == 0.125
    assert found.same_seeds
    assert "no difference that luck could not make" in found.verdict
    better = compare(played("a", *"f" * 50), played("b", *"s" * 10, *"f" * 40))
    assert better.verdict == "b is better"


def test_several_episodes_count_by_task() -> None:
    """Eight episodes of two tasks are two tasks: no test says anything of them."""
    found = compare(played("a", "ffff", "ffff"), played("b", "ssss", "ffff"))
    assert (found.tasks, found.pairs) == (2, 8)
    assert found.p > 0.3 > mcnemar(0, 4)
    same = compare(played("a", "ff", "ss"), played("b", "ff", "ss"))
    assert (same.difference, same.p) == (0, 1)
    assert same.low < 0 < same.high


def test_three_are_compared_pair_by_pair_with_holm_s_correction() -> None:
    found = compare_all(
        [played("a", *"f" * 12), played("b", *"s" * 7, *"f" * 5), played("c", *"s" * 12)]
    )
    assert [(one.first, one.second) for one in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [one.p_corrected for one in found] == holm([one.p for one in found])


def test_other_tasks_and_other_data_are_refused() -> None:
    one = played("a", "s", "f")
    with pytest.raises(DataError, match="a and b cannot be compared: they have 1 episodes of the"):
        compare(one, played("b", "s"))
    with pytest.raises(DataError, match="e 1, data 0 and e 1, data 1 are not the same"):
        compare(one, played("b", "s", "f", environment="e 1, data 1"))
    with pytest.raises(DataError, match="task 't0' has another prompt in each"):
        compare(one, played("b", "s", "f", prompt="!"))
    with pytest.raises(DataError, match="grades for 1 of the same tasks"):
        compare(one, played("b", "s", "?"))


def drawn(generator: np.random.Generator, share: float) -> Comparison:
    """A comparison on 200 tasks of a policy that solves half of them with one that solves
    1 - 2 (1 - share)^2 of them: a task is solved where its difficulty and luck, both uniform, are
    below 2 share together."""
    difficulty = generator.random(200)
    first, second = (
        played(name, *np.where(difficulty + generator.random(200) < 2 * solved, "s", "f"))
        for name, solved in (("a", 0.5), ("b", share))
    )
    return compare(first, second)


def test_the_detectable_difference_is_found_in_four_of_five_comparisons() -> None:
    generator = np.random.default_rng(0)
    detectable = np.mean([drawn(generator, 0.52).detectable for _ in range(50)])
    share = 1 - math.sqrt((0.5 - detectable) / 2)  # whose true difference that is
    found = [drawn(generator, share) for _ in range(400)]
    assert np.mean([one.difference for one in found]) == pytest.approx(detectable, abs=0.01)
    assert np.mean([one.low > 0 for one in found]) == pytest.approx(0.8, abs=0.06)
