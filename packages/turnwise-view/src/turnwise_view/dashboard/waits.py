"""The waits in a step: which lane had nothing to do, from when to when, and why."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnwise.storage.timeline import EPISODE, LEARNER
from turnwise.times import Doing

OWN = "own work"
"""The work of an episode that samples nothing and waits for no environment."""
OWN_PROCESS = "the run's process"
SHORTEST = 0.005
"""A wait that is a smaller share of the time shown is not named."""
SOON = 0.05
"""Seconds before its end in which a wait is no longer for a phase of the learner that begins: an
episode that begins takes as long to do so."""
MOST = 2000
"""Waits of one step, at most: the longest."""
LEARNER_GOES_ON = "Every episode that may begin is played: more may begin after the update of step"
VALIDATED = "The validation is played meanwhile; its episodes are not drawn."
NOT_BEGUN = "The next episode of the step had not begun."
NO_EPISODE = "No episode is being played."
NO_REQUEST = "Every episode is in its environment, its tools or its verdict: none asks for a turn."
Moments = list[tuple[float, float]]


class Row(NamedTuple):
    """A recorded time of a step: a phase of the learner, a whole episode, or a part of one."""

    step: int
    process: str
    kind: str
    group: str | None
    episode: int | None
    start: float
    end: float

    @property
    def owner(self) -> tuple[str, str | None, int | None]:
        """The episode in a process."""
        return self.process, self.group, self.episode


def rows_of(step: int, table: pa.Table, begin: float = -np.inf, end: float = np.inf) -> list[Row]:
    """The rows of a step: phases of the learner, and what reaches into a time."""
    start, seconds = table["start"].to_numpy(), table["seconds"].to_numpy()
    process = table["process"].cast(pa.string())
    near = (start + seconds > begin) & (start < end) | pc.equal(process, LEARNER).to_numpy()
    part = table.filter(near) if len(near) and not near.all() else table
    texts = (part[name].cast(pa.string()).to_pylist() for name in ("process", "kind", "group"))
    numbers = (part[name].to_pylist() for name in ("episode", "start", "seconds"))
    return [
        Row(step, process, kind, group, episode, start, start + seconds)
        for process, kind, group, episode, start, seconds in zip(*texts, *numbers, strict=True)
    ]


def busy(rows: Iterable[Row], begin: float, end: float) -> Moments:
    """When the engine had a request of an episode, within a time; gaps too short to be seen are
    closed."""
    pairs = [(row.start, row.end) for row in rows if row.kind == Doing.SAMPLING]
    return _union(pairs, (end - begin) * 1e-3)


def _union(pairs: Moments, gap: float = 0.0) -> Moments:
    """The moments as they lie in time, those with at most a gap between them as one."""
    if not pairs:
        return []
    starts, ends = np.array(sorted(pairs)).T
    reach = np.maximum.accumulate(ends)
    breaks = np.flatnonzero(starts[1:] > reach[:-1] + gap)
    first, last = starts[[0, *(breaks + 1)]], reach[[*breaks, -1]]
    return list(zip(first.tolist(), last.tolist(), strict=True))


class Waits:
    """The waits of a step, within a time, from its rows and those of steps beside it. Example:
    `Waits(3, rows, begin, end).of_learner(0)`."""

    def __init__(self, step: int, rows: Sequence[Row], begin: float, end: float) -> None:
        self._step, self._begin, self._end = step, begin, end
        phases = [row for row in rows if row.process == LEARNER]
        self._learner = sorted((row.start, row.step) for row in phases)
        self._waiting = [row for row in phases if row.step == step and row.kind == "waiting"]
        self._validations = sorted(
            (row.start, row.end)
            for row in phases
            if row.kind == "validation" and row.end - row.start > SHORTEST * (end - begin)
        )
        self._own = [row for row in rows if row.step == step]
        episodes = [row for row in self._own if row.kind == EPISODE]
        self._first = min((row.start for row in episodes), default=begin)
        self._last = max(episodes, key=lambda row: row.end, default=None)
        self._done = begin if self._last is None else self._last.end

    def of_learner(self, lane: int) -> Iterator[dict[str, Any]]:
        for row in self._waiting:
            reason = f"It waits for the episodes of step {self._step}{self._slowest()}."
            yield from self._wait(lane, row.start, row.end, reason)

    def of_engine(self, lane: int, requests: Moments) -> Iterator[dict[str, Any]]:
        for start, end in _gaps(requests, self._begin, self._end):
            inside = min(end, self._done)
            yield from self._wait(lane, start, min(end, self._first), NO_EPISODE)
            yield from self._wait(lane, max(start, self._first), inside, NO_REQUEST)
            yield from self._for_update(lane, max(start, self._done), end)

    def of_slots(self, placed: Iterable[tuple[int, Row]]) -> list[dict[str, Any]]:
        """The times in which a place had no episode, the longest of them, in their order."""
        left = f"No episode is left for this place: the step waits for the others{self._slowest()}."
        found = []
        for lane, members in groupby(placed, key=lambda one: one[0]):
            here = [row for _, row in members]
            played = _union([(row.start, row.end) for row in here])
            newest = max((row.start for row in here if row.step == self._step), default=-np.inf)
            for start, end in _gaps(played, self._begin, self._end):
                reason = NOT_BEGUN if end <= newest else left
                found += self._wait(lane, start, min(end, self._done), reason)
                found += self._for_update(lane, max(start, self._done), end)
        longest = sorted(found, key=lambda one: -float(one["seconds"]))[:MOST]
        return sorted(longest, key=lambda one: (one["lane"], one["start"]))

    def _for_update(self, lane: int, start: float, end: float) -> Iterator[dict[str, Any]]:
        """Waits for the learner, by the step of its phase in which each ends; in between it may
        play a validation."""
        reach = [
            (max(first, start), min(last, end))
            for first, last in self._validations
            if last > start and first < end
        ]
        for first, last in reach:
            yield from self._wait(lane, first, last, VALIDATED)
        for first, last in _gaps(reach, start, end):
            before = [step for begun, step in self._learner if begun < last - SOON]
            step = before[-1] if before else self._step
            yield from self._wait(lane, first, last, f"{LEARNER_GOES_ON} {step}.")

    def _slowest(self) -> str:
        """The episode that ended last, and what took most of its time."""
        last = self._last
        if last is None:
            return ""
        seconds = {OWN: last.end - last.start}
        for row in self._own:
            if row.kind != EPISODE and row.owner == last.owner:
                seconds[row.kind] = seconds.get(row.kind, 0.0) + row.end - row.start
                seconds[OWN] -= row.end - row.start
        most = max(seconds, key=seconds.__getitem__)
        name = f"{last.group} episode {last.episode} in {last.process or OWN_PROCESS}"
        return f"; the last to end is {name}, most of it {most}"

    def _wait(self, lane: int, start: float, end: float, reason: str) -> list[dict[str, Any]]:
        start = max(start, self._begin)
        if end - start <= SHORTEST * (self._end - self._begin):
            return []
        begun, took = round(start - self._begin, 5), round(end - start, 5)
        return [{"lane": lane, "start": begun, "seconds": took, "reason": reason}]


def _gaps(played: Sequence[tuple[float, float]], begin: float, end: float) -> Moments:
    """The times between moments that do not overlap, and before and after them."""
    edges = [begin, *np.ravel(played).tolist(), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
