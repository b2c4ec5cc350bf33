"""The simulation against closed forms, where there are any, and against itself."""

import random
from itertools import pairwise

import pytest

from turnwise.cluster.planner.simulation import Admission, Pace, Schedule, simulate
from turnwise.cluster.planner.workload import Episode, PlannedTurn, Stated, ToolTimes, Workload

LENGTHS = (10, 20, 30, 40)
LOAD = Workload(4, [(PlannedTurn(0, length, 0),) for length in LENGTHS])
AHEAD = Schedule(staleness=1, colocated=False)


def constant(seconds: float, update: float, **options: float) -> Pace:
    """A machine on which sequences do not slow each other down."""
    return Pace(lambda _: seconds, update=update, **options)


def turns(*tokens: int) -> Episode:
    """An episode with a call after each turn but the last."""
    return tuple(PlannedTurn(0, n, int(i + 1 < len(tokens))) for i, n in enumerate(tokens))


def test_a_synchronous_step_is_its_longest_episode_and_the_update() -> None:
    found = simulate(LOAD, constant(0.1, update=2.0), Schedule())
    assert found.step == pytest.approx(max(LENGTHS) * 0.1 + 2)
    assert found.waiting == pytest.approx(max(LENGTHS) * 0.1)
    assert found.age == 0
    assert found.active == pytest.approx(sum(LENGTHS) / max(LENGTHS))


@pytest.mark.parametrize("update", [0.5, 3.0, 8.0, 20.0])
@pytest.mark.parametrize("staleness", [1, 3])
def test_an_asynchronous_step_is_the_slower_of_sampling_and_learning(
    update: float, staleness: int
) -> None:
    """Sampling at its highest rate: one sequence at a time, all alike, enough steps ahead."""
    load = Workload(4, [(PlannedTurn(0, 10, 0),)])
    pace = constant(0.1, update=update, slots=1)
    schedule = Schedule(staleness, colocated=False)
    found = simulate(load, pace, schedule, steps=40, warm=10)
    assert found.step == pytest.approx(max(4 * 10 * 0.1, update), rel=1e-6)


def test_without_limits_steps_ahead_share_the_way_through() -> None:
    """Each step takes sampling and update one after the other, and two are under way."""
    found = simulate(LOAD, constant(0.1, update=1.0), AHEAD, steps=40, warm=10)
    assert found.step == pytest.approx((4 + 1) / 2)


def test_as_many_sequences_share_a_sampler() -> None:
    """Processor sharing: n at once take n times as long; 10 and 30 ticks end after 20 and 40."""
    load = Workload(2, [turns(10), turns(30)])
    pace = Pace(lambda sequences: sequences, update=0.0)
    assert simulate(load, pace, Schedule()).step == pytest.approx(20 + 20)
    halves = Pace(lambda sequences: sequences, update=0.0, samplers=2)
    assert simulate(load, halves, Schedule()).step == pytest.approx(10 + 10 * 1.0)


def test_sequences_beyond_the_slots_wait() -> None:
    found = simulate(LOAD, constant(1.0, update=0.0, slots=1), Schedule())
    assert found.step == pytest.approx(sum(LENGTHS))
    assert found.active == 1


def test_tools_are_waited_for_by_their_own_episode_alone_or_by_all() -> None:
    load = Workload(2, [turns(10, 10), turns(15, 10)], ToolTimes(5.0))
    free = simulate(load, constant(1.0, update=0.0), Schedule())
    assert free.step == pytest.approx(15 + 5 + 10)
    lockstep = simulate(load, constant(1.0, update=0.0), Schedule(admission=Admission.LOCKSTEP))
    assert lockstep.step == pytest.approx(10 + 5 + 5 + 5 + 10)
    one = simulate(load, constant(1.0, update=0.0, tool_slots=1), Schedule())
    assert one.step == pytest.approx(15 + 5 + 10)
    alike = Workload(2, [turns(10, 10)], ToolTimes(5.0))
    queue = simulate(alike, constant(1.0, update=0.0, tool_slots=1), Schedule())
    assert queue.step == pytest.approx(10 + 5 + 5 + 10)


@pytest.mark.parametrize(
    ("admission", "tool", "begins"),
    [
        (Admission.AT_ONCE, 3.0, 10 + 3),
        (Admission.TOGETHER, 3.0, 16),
        (Admission.LOCKSTEP, 3.0, 16),
        (Admission.TOGETHER, 9.0, 10 + 9),
        (Admission.LOCKSTEP, 9.0, 10 + 9),
    ],
)
def test_one_turn_of_many_begins_when_samplers_admit_it(
    admission: Admission, tool: float, begins: float
) -> None:
    """One of eleven ends after 10 passes; the embedded engine goes on for 16 before it looks for
    another turn, by then the tool may have answered, and in lockstep it stops until it has."""
    others = [turns(40)] * 10
    load = Workload(11, [turns(10, 60), *others], ToolTimes(tool))
    found = simulate(load, constant(1.0, update=0.0), Schedule(admission=admission))
    assert found.step == pytest.approx(begins + 60)
    stopped = max(0.0, begins - 16) if admission == Admission.LOCKSTEP else 0.0
    sampled = 10 * 40 + 70
    assert found.active * found.sampling * found.step == pytest.approx(sampled, rel=1e-6)
    assert found.sampling == pytest.approx(1 - stopped / found.step, rel=1e-6)


def test_many_turns_that_end_together_are_waited_for_once_in_lockstep() -> None:
    load = Workload(8, [turns(10, 10)] * 8, ToolTimes(5.0))
    schedule = Schedule(admission=Admission.LOCKSTEP)
    assert simulate(load, constant(1.0, update=0.0), schedule).step == pytest.approx(25)


def test_the_call_of_a_last_turn_is_waited_for() -> None:
    load = Workload(1, [(PlannedTurn(0, 10, 1),)], ToolTimes(5.0))
    assert simulate(load, constant(1.0, update=0.0), Schedule()).step == pytest.approx(15)


def test_sampling_and_learning_slow_each_other_down_on_shared_cores() -> None:
    """Twice as long while both go on: 10 s of each beside the other end after 20."""
    load = Workload(1, [turns(10)])
    pace = constant(1.0, update=10.0, beside=2.0, slots=1)
    assert simulate(load, pace, AHEAD, steps=10, warm=4).step == pytest.approx(20)
    assert simulate(load, pace, Schedule(), steps=10, warm=4).step == pytest.approx(10 + 10)
    longer = constant(1.0, update=15.0, beside=2.0, slots=1)  # 10 of them beside 10 of sampling
    assert simulate(load, longer, AHEAD, steps=10, warm=4).step == pytest.approx(20 + 5)


def test_driver_and_store_take_one_episode_at_a_time() -> None:
    alike = Workload(4, [turns(10)])
    driver = simulate(alike, constant(1.0, update=0.0, driver=3.0), Schedule())
    assert driver.step == pytest.approx(10 + 4 * 3)
    both = simulate(alike, constant(1.0, update=0.0, driver=3.0, store=1.0), Schedule())
    assert both.step == pytest.approx(10 + 1 + 4 * 3)


def test_what_is_read_and_new_weights_take_their_time() -> None:
    load = Workload(1, [(PlannedTurn(100, 10, 0),)])
    found = simulate(load, constant(1.0, update=2.0, prefill=0.1, weights=4.0), Schedule())
    assert found.step == pytest.approx(100 * 0.1 + 10 + 2 + 4)


def test_colocated_samplers_rest_during_updates() -> None:
    apart = simulate(LOAD, constant(1.0, update=30.0, slots=1), AHEAD, steps=20, warm=5)
    shared = Schedule(staleness=1, colocated=True)
    together = simulate(LOAD, constant(1.0, update=30.0, slots=1), shared, steps=20, warm=5)
    assert apart.step == pytest.approx(sum(LENGTHS))
    assert together.step == pytest.approx(sum(LENGTHS) + 30)


def test_no_episode_is_older_than_the_bound_and_limits_hold() -> None:
    for staleness in (0, 1, 2, 5):
        found = simulate(LOAD, constant(0.1, update=9.0), Schedule(staleness, False), steps=20)
        assert staleness - 1 < found.age + 1e-9 <= staleness or staleness == 0 == found.age
    crowd = simulate(LOAD, constant(0.1, update=1.0), Schedule(2, False, under_way=3), steps=5)
    assert crowd.under_way == 3


def test_the_same_arguments_give_the_same_numbers_and_another_seed_others() -> None:
    load = Workload(32, Stated(100, 5, 50, 80, 10, 200).episodes(50), ToolTimes(2.0, 1.5))
    pace = Pace(lambda sequences: 0.01 + 0.001 * sequences, update=3.0, samplers=2, weights=0.5)
    first, again = (simulate(load, pace, AHEAD, seed=7) for _ in range(2))
    assert first == again
    assert first != simulate(load, pace, AHEAD, seed=8)


def test_faster_parts_never_make_a_step_longer() -> None:
    load = Workload(64, Stated(100, 5, 50, 80, 10, 200).episodes(50), ToolTimes(1.0, 1.0))
    found = [
        simulate(load, constant(0.1, update=20.0, slots=slots), Schedule(), seed=1).step
        for slots in (4, 8, 16, 64)
    ]
    assert all(after <= before for before, after in pairwise(found))


def test_tool_times_have_their_mean_and_spread() -> None:
    luck = random.Random(0)
    drawn = [ToolTimes(2.0, 0.5).draw(luck, 1) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(2.0, rel=0.02)
    assert ToolTimes().draw(luck, 3) == 0
    assert ToolTimes(2.0).draw(luck, 3) == pytest.approx(6.0)


def test_a_large_run_is_simulated_in_full() -> None:
    """Twenty thousand episodes under way, each event counted once."""
    load = Workload(10_000, [turns(10), turns(20)])
    found = simulate(load, constant(0.1, update=100.0, samplers=1000), AHEAD, steps=1, warm=1)
    assert found.under_way == 20_000
    assert found.step == pytest.approx(100.0)
    assert found.events < 100_000
