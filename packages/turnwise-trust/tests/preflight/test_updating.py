"""The time of an update, where it takes long."""

import time
from collections.abc import Sequence
from dataclasses import replace

from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict
from turnwise_trust.preflight.updating import Update, timed

HANG = 60.0
TOKENS = Tokens.empty().with_segments([Segment([1] * 10, Source.USER)], turn=0)


def group(name: str) -> Group:
    """Four episodes of ten tokens each."""
    one = Trajectory(Task(name, name), name, 0, 0, tokens=TOKENS, outcome=Outcome.FAILURE)
    return Group(name, (replace(one, verdict=Verdict(0.0, False)),) * 4)


def measured(*seconds: float, most: float = 1.0) -> tuple[Update, list[int]]:
    """The update of a learner that takes so many seconds, and the episodes of each that it made."""
    took, made = iter(seconds), list[int]()

    def update(chosen: Sequence[Group]) -> None:
        time.sleep(next(took))
        made.append(sum(len(one.trajectories) for one in chosen))

    return timed(lambda: update, [group(name) for name in "abc"], 2, most), made


def test_a_step_is_measured_whole_where_there_is_time():
    update, made = measured(0.01, 0.1)
    assert made == [2, 8]
    assert update.note == "measured"
    assert 0.1 <= (update.seconds or 0) < HANG


def test_an_update_that_does_not_end_is_given_up():
    begun = time.monotonic()
    update, made = measured(HANG, most=0.1)
    assert (update.seconds, made) == (None, [])
    assert update.note == "none ended within 0 s; --seconds gives it more"
    assert time.monotonic() - begun < HANG / 2


def test_where_the_second_does_not_end_the_first_tells_the_time():
    update, made = measured(0.01, HANG, most=0.5)
    assert made == [2]
    assert 0.04 <= (update.seconds or 0) < HANG  # a step has four times the tokens
    assert update.note == "from 20 tokens; rather less at once"


def test_a_second_is_not_begun_for_which_there_is_no_time():
    update, made = measured(0.2, HANG, most=0.3)
    assert made == [2]
    assert 0.8 <= (update.seconds or 0) < HANG
