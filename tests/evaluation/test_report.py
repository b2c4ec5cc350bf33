"""The report for people: the mean reward of every evaluation, and the steps that taught nothing."""

from typing import Any

import pytest
from rich.console import Console

from tests.graded import graded
from turnwise.commands.results import report_tables
from turnwise.evaluation.details import caution_lines
from turnwise.evaluation.evaluate import summarise
from turnwise.evaluation.report import report_markdown
from turnwise.types import Task


def summary(*rewards: float | None) -> dict[str, Any]:
    """Of an evaluation with these rewards, None for one without a grade."""
    tasks = [Task(str(n), "?", info={"kind": "one"}) for n in range(len(rewards))]
    return summarise(
        [
            graded(None if reward is None else False, task, reward=reward)
            for task, reward in zip(tasks, rewards, strict=True)
        ]
    )


@pytest.fixture
def report() -> dict[str, Any]:
    signal = {
        "steps": 12,
        "without": 12,
        "reasons": {"all are equal": 11, "no grade": 1},
        "when": {"all are equal": "1-11", "no grade": "12"},
    }
    return {
        "name": "demo",
        "seed": 0,
        "any_name": summary(0.25, 0.5, None),
        "another": summary(None),
        "comparisons": [],
        "constant_answer": None,
        "learning_signal": signal,
        "statement": {"environment": "words"},
        "seconds": 1.0,
        "commit": "unknown",
        "version": "0",
    }


def printed(report: dict[str, Any]) -> str:
    """The tables of a terminal."""
    console = Console(width=120, record=True)
    for table in report_tables(report):
        console.print(table)
    return console.export_text()


def test_the_mean_reward_is_told_and_none_where_nothing_was_graded(report: dict[str, Any]) -> None:
    lines = report_markdown(report).splitlines()
    assert (
        "| policy | success | 95% interval | n | ungraded | outcome reward | tool calls |" in lines
    )
    assert "| any_name | 0.0% | 0.0% – 65.8% | 2 | 1 | 0.38 | 0.00 |" in lines
    assert "| another | 0.0% | 0.0% – 100.0% | 0 | 1 | – | 0.00 |" in lines
    assert "Success if the ungraded episodes had failed: any_name 0.0%, another 0.0%." in lines
    assert "| kind | any_name | another |" in lines
    assert "| one | 0.0% (0.0% – 65.8%) of 2 | 0.0% (0.0% – 100.0%) of 0 |" in lines
    assert "- any_name: 2 failure, 1 grader_error." in lines
    shown = printed(report)
    assert "reward" in shown
    assert "0.38" in shown


def test_steps_that_taught_nothing_are_counted_by_their_reasons(report: dict[str, Any]) -> None:
    text = report_markdown(report)
    assert "12 of 12 RL steps had no learning signal:" in text
    assert "| 11 | 1-11 | all are equal |" in text
    assert "| 1 | 12 | no grade |" in text
    report["learning_signal"] = {"steps": 12, "without": 0, "reasons": {}, "when": {}}
    assert "learning signal" not in report_markdown(report).lower()


def test_pass_at_k_and_cautions_are_told() -> None:
    part = summarise([graded(n < 7, str(n // 2), n) for n in range(8)])
    empty = {"steps": 0, "without": 0, "reasons": {}}
    facts = {"comparisons": [], "constant_answer": None, "learning_signal": empty, "statement": {}}
    named = {"name": "x", "seed": 0, "seconds": 1.0, "commit": "c", "version": "0"}
    report = named | facts | {"trained": part}
    text = report_markdown(report)
    assert (
        "| policy | k | pass@k | 95% interval | pass^k | 95% interval | tasks | undefined |" in text
    )
    assert "| trained | 2 | 100.0% | 23.1% – 100.0% | 75.0% | 13.2% – 98.3% | 4 | 0 |" in text
    assert "- A success costs 0 sampled tokens." in text
    assert "| trained | 0 | – | 0 |" in text
    timed = part | {"latency": {"median": 0.41, "p95": 1.24}}
    assert "- An episode takes 0.41 s in the median, and 1.2 s or more in 5% of cases" in (
        report_markdown(report | {"trained": timed})
    )
    priced = part | {"seconds": 14.0, "cost": {"total": 3.5, "per_success": 0.5}}
    text = report_markdown(report | {"trained": priced, "base": summary(0.0)})
    assert "| trained | 0 | 2 | 0 | 0.5 |" in text
    assert "| base | – | – | 0 | – |" in text
    assert "- At the prices of the recipe it cost 3.5, 0.5 a success." in text
    assert text.count("- Caution (base): too few tasks: 1 ") == 1
    assert "- Caution (trained): too few tasks: 4 " in text
    shown = printed(report)
    assert "4 held-out tasks, 8 episodes" in shown
    assert "too few tasks: 4 " in shown
    assert all(part in shown for part in ("pass@2", "pass^2", "75.0%"))


@pytest.mark.parametrize(("base", "told"), [(30, False), (50, True)])
def test_a_ceiling_is_no_caution_where_the_tasks_told_policies_apart(base: int, told: bool) -> None:
    """94% of 50 tasks, after 60% or 100%."""
    parts = {
        name: summarise([graded(n < won, str(n)) for n in range(50)])
        for name, won in (("base", base), ("trained", 47))
    }
    assert any("at the ceiling: 3 of 50" in line for line in caution_lines(parts)) == told
    (table, *_) = report_tables({"name": "x", **parts})
    assert ("at the ceiling" in str(table.caption)) == told
