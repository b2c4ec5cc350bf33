"""A simulation of a run's steps, by discrete events: ends of turns, of tool calls, of updates.

All samplers are one pool, in which every active sequence gets the same rate (processor sharing):
as busy as they are on average, one token each takes `Pace.iteration` seconds. A clock of tokens
advances at that rate, so that a turn of n tokens ends n ticks after its beginning, whatever begins
and ends meanwhile, and an event costs the logarithm of their number. Steps begin as the trainer's
do (`rollout/pipeline.py`): step s once weights of version s - staleness are there. Turns begin as
the samplers let them: at once, or as the embedded engine does (`engines/admission.py`).

Not here: how fast the parts are (`speed.py`, `measured.py`), and which plan is best (`plan.py`).
"""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush

from turnwise.cluster.planner.workload import Episode, Workload
from turnwise.engines.admission import PATIENCE, is_due

SHORTEST = 1e-12
"""Seconds of an update that takes no time."""


@dataclass(frozen=True)
class Pace:
    """The speed of each part of the machinery, in seconds."""

    iteration: Callable[[float], float]
    """Sequences on one sampler, on average -> seconds in which each of them gets one more token."""
    update: float
    """Learning from one step."""
    samplers: float = 1
    """Samplers; a share of one where a step is simulated at a smaller scale."""
    slots: float = math.inf
    """Sequences on one sampler at once, at most."""
    prefill: float = 0.0
    """Ticks of the clock of tokens that a turn takes for each token that it reads."""
    weights: float = 0.0
    """New weights: nothing is sampled meanwhile."""
    driver: float = 0.0
    """The driver's work for one episode; one episode at a time."""
    store: float = 0.0
    """The object store's work for one episode; one episode at a time."""
    tool_slots: float = math.inf
    """Tool calls at once, at most."""
    beside: float = 1.0
    """Times as long that sampling and learning take while both go on, on cores that they share."""


class Admission(StrEnum):
    """When samplers begin with turns that wait."""

    AT_ONCE = "at once"
    TOGETHER = "together"
    """The embedded engine's way: with as many others, or after some passes."""
    LOCKSTEP = "lockstep"
    """Its way with `engine.deterministic`: when some have ended, and no tool works."""


@dataclass(frozen=True)
class Schedule:
    """The order in which the parts work."""

    staleness: int = 0
    colocated: bool = True
    """Whether nothing is sampled during an update."""
    admission: Admission = Admission.AT_ONCE
    under_way: float = math.inf
    """Episodes under way, at most."""


@dataclass(frozen=True)
class Timing:
    """The outcome of a simulation, once it is running evenly."""

    step: float
    """Seconds between two updates' ends, mean."""
    waiting: float
    """Seconds of them in which the learner waits, mean."""
    sampling: float
    """Share of the time in which something is sampled."""
    active: float
    """Sequences that are being sampled, mean over that time."""
    age: float
    """Updates between an episode's beginning and the update that learns from it, mean."""
    under_way: int
    """Most episodes under way at once."""
    events: int
    """Events that were simulated."""

    @property
    def steps_per_hour(self) -> float:
        """Steps of an hour."""
        return 3600 / self.step


def simulate(
    workload: Workload,
    pace: Pace,
    schedule: Schedule,
    steps: int = 4,
    warm: int = 1,
    seed: int = 0,
) -> Timing:
    """Simulate `steps` steps after `warm` others, which are not counted. The same arguments give
    the same numbers."""
    simulation = Simulation(workload, pace, schedule, warm + max(1, steps), seed)
    simulation.run()
    return simulation.timing(warm)


@dataclass
class _Playing:
    """An episode under way."""

    step: int
    turns: Episode
    luck: random.Random
    turn: int = 0


@dataclass
class Simulation:
    """The state of the machinery at a moment. Example: see `simulate`."""

    workload: Workload
    pace: Pace
    schedule: Schedule
    steps: int
    seed: int
    now: float = 0.0
    ticks: float = 0.0
    """The clock of tokens."""
    version: int = 0
    events: int = 0
    _waiting: deque[_Playing] = field(default_factory=deque)
    """Episodes that have not begun."""
    _ready: deque[_Playing] = field(default_factory=deque)
    """Turns that no sampler has begun with."""
    _ended: int = 0
    """Turns that have ended since the last admission."""
    _admitted: float = 0.0
    """Ticks at the last admission."""
    _sampling: list[tuple[float, int, _Playing]] = field(default_factory=list)
    _called: deque[_Playing] = field(default_factory=deque)
    """Episodes whose tool has no room."""
    _tools: list[tuple[float, int, _Playing]] = field(default_factory=list)
    _number: int = 0
    _under_way: int = 0
    _most: int = 0
    _begun: int = 0
    _left: dict[int, int] = field(default_factory=dict)
    """Episodes of a step that are still to be collected."""
    _collected: dict[int, float] = field(default_factory=dict)
    """When the last episode of a step was."""
    _driver_free: float = 0.0
    _store_free: float = 0.0
    _learning: float = 0.0
    """Seconds that the present update would still take alone; 0 where there is none."""
    _paused_until: float = 0.0
    _ends: list[float] = field(default_factory=list)
    _waits: list[float] = field(default_factory=list)
    _idle_since: float = 0.0
    _busy: float = 0.0
    _area: float = 0.0
    _ages: float = 0.0
    _played: int = 0
    """Episodes that have begun."""

    def run(self) -> None:
        """Play until all steps are learned from."""
        self._admit()
        while self.version < self.steps:
            self._learn()
            rate = self._rate()
            self._advance(self._next(rate), rate)
            self.events += 1

    def timing(self, warm: int) -> Timing:
        """The measurements, without the first `warm` steps."""
        start = self._ends[warm - 1] if warm else 0.0
        counted = len(self._ends) - warm
        return Timing(
            step=(self._ends[-1] - start) / counted,
            waiting=sum(self._waits[warm:]) / counted,
            sampling=self._busy / self.now if self.now else 0.0,
            active=self._area / self._busy if self._busy else 0.0,
            age=self._ages / self._played,
            under_way=self._most,
            events=self.events,
        )

    def _rate(self) -> float:
        """Ticks per second, now."""
        active = len(self._sampling)
        stopped = self.now < self._paused_until or (self._learning and self.schedule.colocated)
        if not active or stopped or (self._in_lockstep and self._tools and self._admission_due()):
            return 0.0
        slowed = self.pace.beside if self._learning else 1.0
        return 1.0 / (self.pace.iteration(active / self.pace.samplers) * slowed)

    def _next(self, rate: float) -> float:
        """The moment of the next event, at so many ticks per second."""
        times = [self._learned(rate)] if self._learning else []
        if self.now < self._paused_until:
            times.append(self._paused_until)
        if self._tools:
            times.append(self._tools[0][0])
        if rate:
            times.append(self._ticked(rate))
        collected = self._collected.get(self.version, math.inf)
        if not self._left.get(self.version, 1) and collected > self.now:
            times.append(collected)
        return min(times)

    def _learned(self, rate: float) -> float:
        """The moment at which the present update ends, at so many ticks per second."""
        return self.now + self._learning * (self.pace.beside if rate else 1.0)

    def _tick(self) -> float:
        """The tick of the next event: the end of a turn, or the end of samplers' patience."""
        first, patience = self._sampling[0][0], self._admitted + PATIENCE
        return min(first, patience) if self._due and patience > self.ticks else first

    def _ticked(self, rate: float) -> float:
        """The moment of that tick, at so many ticks per second."""
        return self.now + max(0.0, self._tick() - self.ticks) / rate

    def _advance(self, moment: float, rate: float) -> None:
        """Go to a moment, and do what ends there."""
        passed = moment - self.now
        learned = bool(self._learning) and moment >= self._learned(rate)
        if self._learning and not learned:
            self._learning -= passed / (self.pace.beside if rate else 1.0)
        if rate:
            # By the moment, not by the ticks: rounding must not leave a rest of a turn.
            ticked = moment >= self._ticked(rate)
            self.ticks = self._tick() if ticked else self.ticks + rate * passed
            self._busy += passed
            self._area += len(self._sampling) * passed
        self.now = moment
        if learned:
            self._updated()
        while self._tools and self._tools[0][0] <= moment:
            self._answered(heappop(self._tools)[2])
        while rate and self._sampling and self._sampling[0][0] <= self.ticks:
            self._sampled(heappop(self._sampling)[2])
        self._fill()

    def _admit(self) -> None:
        """Begin the steps that the present version allows."""
        while self._begun <= self.version + self.schedule.staleness:
            step, self._begun = self._begun, self._begun + 1
            drawn = self.workload.draw(step, self.seed)
            self._left[step] = len(drawn)
            for number, turns in enumerate(drawn):
                luck = random.Random(hash((self.seed, step, number)))
                self._waiting.append(_Playing(step, turns, luck))
        self._fill()

    def _fill(self) -> None:
        """Give what has become free to those who wait for it."""
        while self._called and len(self._tools) < self.pace.tool_slots:
            self._call(self._called.popleft())
        while self._waiting and self._under_way < self.schedule.under_way:
            playing = self._waiting.popleft()
            self._under_way += 1
            self._most = max(self._most, self._under_way)
            self._ages += playing.step - self.version
            self._played += 1
            self._ready.append(playing)
        if self._admission_due() and not (self._in_lockstep and self._tools):
            self._ended, self._admitted = 0, self.ticks
            while self._ready and len(self._sampling) < self._room:
                self._sample(self._ready.popleft())

    @property
    def _in_lockstep(self) -> bool:
        return self.schedule.admission == Admission.LOCKSTEP

    @property
    def _room(self) -> float:
        return self.pace.slots * self.pace.samplers

    @property
    def _due(self) -> float:
        """Turns that samplers' patience is for; none where each begins at once."""
        if self.schedule.admission == Admission.AT_ONCE:
            return 0
        if self._in_lockstep:
            return self._ended
        return min(len(self._ready), self._room - len(self._sampling))

    def _admission_due(self) -> bool:
        """Whether samplers begin with turns that wait now."""
        running, due = len(self._sampling), self._due
        if not running or self.schedule.admission == Admission.AT_ONCE:
            return True
        return is_due(running, due, self.ticks - self._admitted)

    def _sample(self, playing: _Playing) -> None:
        turn = playing.turns[playing.turn]
        length = turn.sampled + self.pace.prefill * turn.read
        self._push(self._sampling, self.ticks + length, playing)

    def _sampled(self, playing: _Playing) -> None:
        """A turn has ended: a tool is called, or the episode is over."""
        self._ended += 1
        if playing.turns[playing.turn].calls:
            if len(self._tools) < self.pace.tool_slots:
                self._call(playing)
            else:
                self._called.append(playing)
            return
        self._answered(playing)

    def _call(self, playing: _Playing) -> None:
        calls = playing.turns[playing.turn].calls
        seconds = self.workload.tools.draw(playing.luck, calls)
        self._push(self._tools, self.now + seconds, playing)

    def _answered(self, playing: _Playing) -> None:
        """The next turn begins, or the episode is over."""
        playing.turn += 1
        if playing.turn < len(playing.turns):
            self._ready.append(playing)
            return
        self._under_way -= 1
        self._store_free = max(self.now, self._store_free) + self.pace.store
        self._driver_free = max(self._store_free, self._driver_free) + self.pace.driver
        self._left[playing.step] -= 1
        last = self._collected.get(playing.step, 0.0)
        self._collected[playing.step] = max(last, self._driver_free)

    def _learn(self) -> None:
        """Begin an update if its step is there."""
        there = not self._left.get(self.version, 1) and self._collected[self.version] <= self.now
        if there and not self._learning and self.now >= self._paused_until:
            self._waits.append(self.now - self._idle_since)
            self._learning = max(self.pace.update, SHORTEST)

    def _updated(self) -> None:
        self._learning = 0.0
        self._paused_until = self.now + self.pace.weights
        self._ends.append(self.now)
        self._idle_since = self.now
        self.version += 1
        self._admit()

    def _push(
        self, heap: list[tuple[float, int, _Playing]], when: float, playing: _Playing
    ) -> None:
        self._number += 1
        heappush(heap, (when, self._number, playing))
