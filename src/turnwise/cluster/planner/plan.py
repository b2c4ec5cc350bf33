"""The best division of GPUs between learning and sampling, what bounds it, and what it costs.

Every division is first judged by the closed form `max(sampling, learning)`; the best ones are then
simulated. What bounds a plan is found by making one part at a time infinitely fast. Large steps are
simulated at a smaller scale: fewer episodes on as many times fewer samplers.

Not here: how fast the parts are (`speed.py`, `measured.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from turnwise.cluster.planner.hardware import Gpu
from turnwise.cluster.planner.memory import (
    GIB,
    LearnerMemory,
    SamplerMemory,
    Training,
    learner_memory,
    least_learners,
    sampler_memory,
)
from turnwise.cluster.planner.shapes import ModelShape
from turnwise.cluster.planner.simulation import Pace, Schedule, Timing, simulate
from turnwise.cluster.planner.speed import (
    Efficiency,
    iteration_seconds,
    store_seconds,
    update_seconds,
    weights_seconds,
)
from turnwise.cluster.planner.workload import ToolTimes, Workload

SIMULATED = 4
"""Divisions that are simulated, of all that are judged by the closed form."""
MOST_TURNS = 2000
"""Turns of a step that are simulated while plans are compared, about: larger steps are made
smaller. The slowest of fewer episodes is less slow."""
SHOWN_TURNS = 10_000
"""Turns that are simulated of the plans that are returned."""
NO_WORSE = 0.98
"""Share of the best plan's speed at which one with less staleness is preferred."""
ALIKE = 0.1
"""Gain below which a part does not bound a plan alone."""
PARTS = ("sampling", "tools", "learning", "weights", "driver", "object store")
"""Parts that can bound a plan."""


@dataclass(frozen=True)
class Ask:
    """A run to be planned, and its GPUs."""

    shape: ModelShape
    workload: Workload
    training: Training
    gpu: Gpu
    gpus: int
    most_staleness: int = 4
    under_way: float = math.inf
    """Episodes under way, at most."""
    tool_slots: float = math.inf
    efficiency: Efficiency = field(default_factory=Efficiency)
    gpu_hour: float = 0.0
    """Price of an hour of one GPU; 0 where none is given."""
    tool_call: float = 0.0
    """Price of a tool call."""


@dataclass(frozen=True)
class Division:
    """One way to use the GPUs."""

    learners: int
    samplers: int
    """GPUs that sample: the learners themselves where they are colocated."""
    colocated: bool
    staleness: int


@dataclass(frozen=True)
class Plan:
    """A division, its memory, its speed and its cost."""

    division: Division
    learner: LearnerMemory
    sampler: SamplerMemory
    pace: Pace
    timing: Timing
    bound: str
    """The part that bounds it: one of PARTS, or "all alike"."""
    gains: dict[str, float]
    """How many times as fast it were if a part took no time, for each of PARTS."""
    busy: dict[str, float]
    """Share of the time that each of PARTS works; one near 1 is saturated."""
    calls: float
    """Tool calls at once, mean."""
    step_cost: float | None
    """None where no price is given."""
    success_cost: float | None
    """None where no price is given, or the share of successes is not known."""


def best_plans(ask: Ask, count: int = 3) -> list[Plan]:
    """The best divisions, first the one to take: the fastest, or one that is hardly slower with
    less staleness. Raises ConfigError where the model does not fit."""
    found = sorted(divisions(ask), key=lambda one: closed_form(ask, one))
    simulated = [(one, timed(ask, one)) for one in found[:SIMULATED]]
    fastest = min(timing.step for _, timing in simulated)
    enough = [pair for pair in simulated if pair[1].step * NO_WORSE <= fastest]
    chosen = min(enough, key=lambda pair: (pair[0].staleness, pair[1].step))
    others = sorted((pair for pair in simulated if pair != chosen), key=lambda pair: pair[1].step)
    return [_plan(ask, *pair) for pair in (chosen, *others[: count - 1])]


def divisions(ask: Ask) -> list[Division]:
    """All divisions on which learners and samplers have room. Raises ConfigError for none."""
    memory, gpus = ask.gpu.memory * GIB, ask.gpus
    learners = least_learners(ask.shape, ask.training, memory, gpus)
    context, longest = ask.workload.tokens, ask.workload.longest
    sampler = sampler_memory(ask.shape, memory, context, longest, gpus).gpus
    found = [Division(gpus, gpus, True, 0)]
    for count in _shares(gpus):
        samplers = (gpus - count) // sampler * sampler
        if count >= learners and samplers:
            found += [
                Division(count, samplers, False, staleness)
                for staleness in range(ask.most_staleness + 1)
            ]
    return found


def pace_of(ask: Ask, division: Division) -> Pace:
    """The speed of each part in a division."""
    sampler = _sampler(ask, division)
    efficiency = ask.efficiency
    return Pace(
        iteration=iteration_seconds(ask.shape, ask.gpu, sampler.gpus, ask.workload, efficiency),
        update=update_seconds(
            ask.shape, ask.gpu, division.learners, ask.workload, ask.training, efficiency
        ),
        samplers=division.samplers // sampler.gpus,
        slots=sampler.slots,
        weights=weights_seconds(ask.shape, ask.gpu, ask.training, division.colocated, efficiency),
        driver=efficiency.driver * ask.workload.turns,
        store=store_seconds(ask.workload, efficiency),
        tool_slots=ask.tool_slots,
    )


def closed_form(ask: Ask, division: Division) -> float:
    """Seconds of a step if nothing waited but for the slowest part: sampling and learning one after
    the other without staleness, beside each other with it."""
    pace, load = pace_of(ask, division), ask.workload
    active = min(pace.slots, load.episodes / pace.samplers * (1 + division.staleness))
    tokens = load.episodes * load.sampled / pace.samplers
    sampling = tokens / active * pace.iteration(active)
    alone = max(sum(t.sampled for t in kind) for kind in load.kinds) * pace.iteration(1)
    waiting = alone + load.calls * load.tools.mean
    if not division.staleness:
        return max(sampling, waiting) + pace.update + pace.weights
    return max(sampling, waiting / (1 + division.staleness), pace.update) + pace.weights


def timed(
    ask: Ask, division: Division, pace: Pace | None = None, most_turns: int = MOST_TURNS
) -> Timing:
    """Simulate a division, by default at the scale of the comparison; with another pace, where one
    is given."""
    schedule = Schedule(division.staleness, division.colocated, under_way=ask.under_way)
    return scaled(ask.workload, pace or pace_of(ask, division), schedule, most_turns)


def scaled(load: Workload, pace: Pace, schedule: Schedule, most_turns: int = MOST_TURNS) -> Timing:
    """Simulate a step at a scale of `most_turns` turns at most: fewer episodes on as many times
    fewer samplers, whose shares of driver, store and tools are as many times smaller."""
    factor = max(1.0, load.episodes * load.turns / most_turns)
    if factor > 1:
        small = load.thinned(math.ceil(load.episodes / factor))
        factor = load.episodes / small.episodes
        pace = replace(
            pace,
            samplers=pace.samplers / factor,
            driver=pace.driver * factor,
            store=pace.store * factor,
            tool_slots=pace.tool_slots / factor,
        )
        schedule = replace(schedule, under_way=schedule.under_way / factor)
        load = small
    # Steps ahead may end in bunches of so many: a mean is of whole bunches.
    bunch = 1 + schedule.staleness
    timing = simulate(load, pace, schedule, steps=bunch * math.ceil(3 / bunch), warm=1 + bunch)
    return replace(
        timing, active=timing.active * factor, under_way=round(timing.under_way * factor)
    )


def gains(ask: Ask, division: Division, timing: Timing) -> dict[str, float]:
    """How many times as fast a division were if a part took no time, for each of PARTS."""
    pace = pace_of(ask, division)
    never = replace(pace, iteration=lambda sequences: 1e-9, slots=math.inf)
    at_once = replace(ask.workload, tools=ToolTimes())
    found = {
        "sampling": timed(ask, division, never),
        "tools": timed(replace(ask, workload=at_once), division, pace),
        "learning": timed(ask, division, replace(pace, update=1e-9)),
        "weights": timed(ask, division, replace(pace, weights=0.0)),
        "driver": timed(ask, division, replace(pace, driver=0.0)),
        "object store": timed(ask, division, replace(pace, store=0.0)),
    }
    return {part: timing.step / one.step for part, one in found.items()}


def busy(ask: Ask, division: Division, timing: Timing) -> dict[str, float]:
    """Share of the time that each of PARTS works."""
    pace, load = pace_of(ask, division), ask.workload
    return {
        "sampling": timing.sampling,
        "tools": calls_at_once(ask, timing) / ask.tool_slots,
        "learning": min(1.0, pace.update / timing.step),
        "weights": pace.weights / timing.step,
        "driver": load.episodes * pace.driver / timing.step,
        "object store": load.episodes * pace.store / timing.step,
    }


def calls_at_once(ask: Ask, timing: Timing) -> float:
    """Tool calls at once, mean, by Little's law: their rate times their seconds."""
    load = ask.workload
    return load.episodes * load.calls * load.tools.mean / timing.step


def bound_of(found: dict[str, float]) -> str:
    """The part whose absence gains most; all of them alike where none gains a tenth."""
    part = max(found, key=lambda part: found[part])
    return part if found[part] >= 1 + ALIKE else "all alike"


def costs(ask: Ask, timing: Timing) -> tuple[float | None, float | None]:
    """Cost of a step, and of a success; None where they are not known."""
    load = ask.workload
    if not ask.gpu_hour and not ask.tool_call:
        return None, None
    step = ask.gpu_hour * ask.gpus * timing.step / 3600
    step += ask.tool_call * load.calls * load.episodes
    return step, step / (load.success * load.episodes) if load.success else None


def _plan(ask: Ask, division: Division, timing: Timing) -> Plan:
    found = gains(ask, division, timing)
    if ask.workload.episodes * ask.workload.turns > MOST_TURNS:
        timing = timed(ask, division, most_turns=SHOWN_TURNS)
    step_cost, success_cost = costs(ask, timing)
    return Plan(
        division=division,
        learner=learner_memory(ask.shape, ask.training, division.learners),
        sampler=_sampler(ask, division),
        pace=pace_of(ask, division),
        timing=timing,
        bound=bound_of(found),
        gains=found,
        busy=busy(ask, division, timing),
        calls=calls_at_once(ask, timing),
        step_cost=step_cost,
        success_cost=success_cost,
    )


def _sampler(ask: Ask, division: Division) -> SamplerMemory:
    """The memory of a sampler of a division."""
    load = ask.workload
    return sampler_memory(
        ask.shape, ask.gpu.memory * GIB, load.tokens, load.longest, division.samplers
    )


def _shares(gpus: int) -> Sequence[int]:
    """Numbers of learners that are tried: powers of two, and sixteenths of all."""
    powers = {1 << n for n in range(gpus.bit_length())}
    shares = {round(gpus * n / 16) for n in range(1, 16)}
    return sorted(count for count in powers | shares if 0 < count < gpus)
