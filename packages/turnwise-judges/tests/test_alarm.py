"""The warning of a judge whose replies become unreadable."""

import pytest

from turnwise_judges.alarm import UnreadableReplies
from turnwise_judges.asking import Counts


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
    counts = Counts()
    alarm, said = UnreadableReplies(counts), []
    for step, (unreadable, requests) in enumerate(steps, 1):
        counts.unreadable += unreadable
        counts.requests += requests
        said.append(alarm(step))
    told = list(filter(None, said))
    assert [f"RL step {warned} " in text for text in told] == [True] * (warned is not None)


def test_a_run_that_goes_on_compares_with_the_steps_before_it() -> None:
    """Each process counts from 0: here three of them asked, the last one goes on."""
    asked = [(1, 64), (2, 128), (3, 192), (1, 64), (1, 128)]
    timing = [{"judge/unreadable": n, "judge/requests": of} for n, of in asked]
    alarm = UnreadableReplies(Counts(requests=64, unreadable=20), [{"step": 0}, *timing])
    assert "20 of 64 requests in no usable form, 4 of 320 before" in alarm(7)


def test_it_is_told_once() -> None:
    counts = Counts()
    alarm, said = UnreadableReplies(counts), []
    for step in range(1, 6):
        counts.requests += 64
        counts.unreadable += 12 * step
        said.append(alarm(step))
    (told,) = filter(None, said)
    assert "36 of 64 requests in no usable form, 36 of 128 before" in told
