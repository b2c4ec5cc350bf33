"""Intervals against known values; summaries that do not hide the ungraded."""

import pytest

from turnwise.evaluation.evaluate import best_constant_answer, choose_tasks, summarise
from turnwise.evaluation.intervals import wilson
from turnwise.types import Outcome, Task, Trajectory, Verdict


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [
        (0, 1000, 0.0, 0.0038),
        (14, 1000, 0.0084, 0.0234),
        (500, 1000, 0.4691, 0.5309),
        (19, 50, 0.2586, 0.5185),
        (1000, 1000, 0.9962, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_against_published_values(
    successes: int, count: int, low: float, high: float
) -> None:
    assert wilson(successes, count) == pytest.approx((low, high), abs=2e-4)


def trajectory(name: str, outcome: Outcome, hops: str) -> Trajectory:
    task = Task(name, "?", {"answers": ["a"]}, info={"hops": hops, "symbols": ["x"]})
    success = outcome == Outcome.SUCCESS
    verdict = Verdict(float(success), success) if outcome.graded else None
    return Trajectory(task, name, 0, 0, outcome=outcome, verdict=verdict)


def test_summary_counts_graded_episodes_and_names_the_rest() -> None:
    summary = summarise(
        [
            trajectory("1", Outcome.SUCCESS, "one"),
            trajectory("2", Outcome.SUCCESS, "two"),
            trajectory("3", Outcome.TRUNCATED_TURNS, "two"),
            trajectory("4", Outcome.GRADER_ERROR, "two"),
        ]
    )
    assert (summary["n"], summary["ungraded"]) == (3, 1)
    assert summary["success"] == pytest.approx(2 / 3)
    assert summary["success_if_ungraded_failed"] == 0.5
    assert summary["outcomes"] == {"grader_error": 1, "success": 2, "truncated_turns": 1}
    assert summary["breakdown"]["hops"]["two"]["n"] == 2
    assert list(summary["breakdown"]) == ["hops"]
    assert summary["reward"] == pytest.approx(2 / 3)
    assert summary["breakdown"]["hops"]["one"]["reward"] == 1
    assert summarise([trajectory("1", Outcome.GRADER_ERROR, "one")])["reward"] is None


def test_the_same_distinct_tasks_are_chosen_for_a_seed() -> None:
    tasks = [Task(str(index), "?") for index in range(50)]
    first = choose_tasks(tasks, 20, seed=1)
    assert first == choose_tasks(tasks, 20, seed=1)
    assert first != choose_tasks(tasks, 20, seed=2)
    assert len({task.id for task in first}) == 20


def test_best_constant_answer() -> None:
    tasks = [Task(str(i), "?", {"answers": [answer]}) for i, answer in enumerate("aab")]
    assert best_constant_answer(tasks) == pytest.approx(2 / 3)
    assert best_constant_answer([]) is None
    assert best_constant_answer([Task("t", "?", {"answer": "a"})]) is None
