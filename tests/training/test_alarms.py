"""Warnings of a run: a judge whose replies become unreadable."""

import pytest

from tests.small_runs import Listening
from turnwise.judges.asking import Counts
from turnwise.training.alarms import UnreadableJudgements


@pytest.mark.parametrize(
    ("steps", "warned"),
    [
        ([(0, 64)] * 10, None),
        ([(0, 64)] * 9 + [(6, 64)], 10),
        ([(0, 64)] * 9 + [(1, 64)], None),
        ([(20, 64)] * 10, None),
        ([(20, 64), (20, 64), (60, 64)], 3),
        ([(64, 64)], None),
        ([(0, 0), (64, 64), (64, 64)], None),
        ([(60, 64), (0, 64), (0, 64)], None),
    ],
)
def test_a_rise_of_unreadable_replies_is_told(
    steps: list[tuple[int, int]], warned: int | None
) -> None:
    display = Listening()
    alarm, counts = UnreadableJudgements(display), Counts()
    for step, (unreadable, requests) in enumerate(steps, 1):
        counts.unreadable += unreadable
        counts.requests += requests
        alarm.check(step, counts)
    assert [f"RL step {warned} " in said for said in display.said] == [True] * (warned is not None)


def test_a_run_that_goes_on_compares_with_the_steps_before_it() -> None:
    """Each process counts from 0: here three of them asked, the last one goes on."""
    display = Listening()
    asked = [(1, 64), (2, 128), (3, 192), (1, 64), (1, 128)]
    timing = [{"judge/unreadable": n, "judge/requests": of} for n, of in asked]
    alarm = UnreadableJudgements(display, [{"step": 0}, *timing])
    alarm.check(7, Counts(requests=64, unreadable=20))
    assert "20 of 64 requests in no usable form, 4 of 320 before" in display.said[0]


def test_it_is_told_once() -> None:
    display = Listening()
    alarm, counts = UnreadableJudgements(display), Counts()
    for step in range(1, 6):
        counts.requests += 64
        counts.unreadable += 12 * step
        alarm.check(step, counts)
    assert len(display.said) == 1
    assert "36 of 64 requests in no usable form, 36 of 128 before" in display.said[0]
