"""Summaries: they hide neither the ungraded nor what several episodes of a task are worth."""

from dataclasses import replace

import pytest

from turnwise.evaluation.evaluate import best_constant_answer, summarise
from turnwise.evaluation.intervals import clustered, wilson
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Outcome, Task, Trajectory, Verdict


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


def played(*tasks: str) -> list[Trajectory]:
    """Episodes of tasks: s is a success, f a failure, ? is ungraded."""
    outcomes = {"s": Outcome.SUCCESS, "f": Outcome.FAILURE, "?": Outcome.GRADER_ERROR}
    return [
        trajectory(str(number), outcomes[letter], "one")
        for number, letters in enumerate(tasks)
        for letter in letters
    ]


def test_several_episodes_of_a_task_by_hand() -> None:
    """Three tasks: pass@2 is 1 - 1/6, 1, undefined; pass^2 is 1/6 (of four two succeed), 1."""
    summary = summarise(played("sffs", "ssss", "f???"))
    assert (summary["n"], summary["tasks"], summary["successes"]) == (9, 3, 6)
    assert (summary["low"], summary["high"]) == clustered([2, 4, 0], [4, 4, 1])
    assert list(summary["pass@k"]) == ["1", "2", "4"]
    at, hat = summary["pass@k"]["2"], summary["pass^k"]["2"]
    assert at["mean"] == pytest.approx((5 / 6 + 1) / 2)
    assert hat["mean"] == pytest.approx((1 / 6 + 1) / 2)
    assert (at["tasks"], at["undefined"]) == (2, 1)
    assert at["low"] < at["mean"] < at["high"]
    assert list(summarise(played("sf", "ss"), [2])["pass^k"]) == ["2"]
    never = summarise(played("s?", "f?"))["pass@k"]["2"]
    assert (never["mean"], never["tasks"], never["undefined"]) == (None, 0, 2)


def test_one_episode_a_task_has_wilson_s_interval() -> None:
    summary = summarise(played(*"s" * 30, *"f" * 20))
    assert (summary["low"], summary["high"]) == wilson(30, 50)
    assert "pass@k" not in summary
    assert not summary["cautions"]


def test_floor_and_ceiling_are_said() -> None:
    """Six tasks in favour of one policy are significant at 5%, five are not."""
    assert 2 * 0.5**6 < 0.05 < 2 * 0.5**5
    (caution,) = summarise(played(*"s" * 95, *"f" * 5))["cautions"]
    assert "at the ceiling: 5 of 100 tasks failed" in caution
    assert not summarise(played(*"s" * 94, *"f" * 6))["cautions"]
    (caution,) = summarise(played(*"f" * 95, *"s" * 5))["cautions"]
    assert "at the floor: 5 of 100 tasks succeeded" in caution
    (caution,) = summarise(played(*"f" * 11))["cautions"]
    assert "too few tasks: 11 tell" in caution


def test_episodes_that_repeat_each_other_are_said() -> None:
    tokens = [Tokens.empty().with_segments([Segment([n], Source.USER)], 0) for n in (1, 2)]
    one, other = played("s" * 12)[:2], played(*["sf"] * 12)
    assert (
        "the same, token by token"
        in summarise([replace(t, tokens=tokens[0]) for t in one])["cautions"][-1]
    )
    varied = [replace(t, tokens=tokens[n % 2]) for n, t in enumerate(other)]
    assert not summarise(varied)["cautions"]


def test_best_constant_answer() -> None:
    tasks = [Task(str(i), "?", {"answers": [answer]}) for i, answer in enumerate("aab")]
    assert best_constant_answer(tasks) == pytest.approx(2 / 3)
    assert best_constant_answer([]) is None
    assert best_constant_answer([Task("t", "?", {"answer": "a"})]) is None
