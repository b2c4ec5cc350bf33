"""Paces that are fitted to measured runs."""

from dataclasses import replace

import pytest

from turnwise.cluster.planner.measured import Measured, fit_pace
from turnwise.cluster.planner.simulation import Admission, Pace, Schedule, simulate
from turnwise.cluster.planner.workload import Episode, PlannedTurn, ToolTimes, Workload
from turnwise.errors import ConfigError

SCHEDULE = Schedule(0, True, Admission.TOGETHER)
TRUE = Pace(lambda sequences: 0.01 + 0.001 * sequences, update=0.0)


def run_of(sizes: list[int], once: float, token: float) -> Measured:
    """A run whose steps have so many episodes, at a pace that is known."""
    steps = [[episode(number) for number in range(size)] for size in sizes]
    load = Workload(sizes[0], [one for step in steps for one in step], ToolTimes())
    loads = [replace(load, episodes=len(step), kinds=step) for step in steps]
    rollout = [simulate(one, TRUE, SCHEDULE, steps=1, warm=0).step for one in loads]
    return Measured(
        load, steps, rollout, [once + token * one.tokens * one.episodes for one in loads]
    )


def episode(number: int) -> Episode:
    """Its turns; some are longer than others."""
    return (PlannedTurn(20, 10 + number % 7, 1), PlannedTurn(5, 5, 0))


def test_a_step_that_was_held_up_moves_no_pace() -> None:
    large, small = run_of([16] * 5, 0.1, 1e-4), run_of([2] * 5, 0.1, 1e-4)
    held_up = replace(large, rollout=[*large.rollout[:-1], 60.0], update=[9.0, *large.update[1:]])
    load = large.workload
    for runs in ([large, small], [held_up, small]):
        pace = fit_pace(runs, SCHEDULE, load)
        assert pace.iteration(8) == pytest.approx(TRUE.iteration(8), rel=1e-3)
        assert pace.update == pytest.approx(0.1 + 1e-4 * load.tokens * load.episodes, rel=1e-6)


def test_steps_of_one_size_are_met_by_one_factor() -> None:
    run = run_of([4, 4], 0.0, 1e-4)
    assert fit_pace([run], SCHEDULE, run.workload).update == pytest.approx(run.update[0])


def test_a_run_with_slow_tools_has_no_pace() -> None:
    run = run_of([4], 0.1, 1e-4)
    slow = replace(run, workload=replace(run.workload, tools=ToolTimes(1.0, 0.5)))
    with pytest.raises(ConfigError, match=r"without environment\.latency"):
        fit_pace([slow], SCHEDULE, run.workload)
