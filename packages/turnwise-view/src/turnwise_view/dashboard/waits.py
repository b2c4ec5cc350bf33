"""The waits in a step: which lane had nothing to do, from when to when, and why."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from turnwise.storage.timeline import EPISODE
from turnwise.times import Doing
from turnwise_view.dashboard.step_rows import Rows

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
Placed = tuple[int, Rows, int]


def busy(parts: Iterable[Rows], begin: float, end: float) -> Moments:
    """When the engine had a request of an episode, within a time; gaps too short to be seen are
    closed."""
    pairs = [
        (part.start[place], part.end[place])
        for part in parts
        for place in part.parts
        if part.kind[place] == Doing.SAMPLING
        and part.end[place] > begin
        and part.start[place] < end
    ]
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
    """The waits of one step, within a time. Example: `Waits(own, begin, end).of_learner(0)`."""

    def __init__(self, own: Rows, others: Sequence[Rows], begin: float, end: float) -> None:
        self._own, self._begin, self._end = own, begin, end
        self._learner = sorted(
            (float(part.start[place]), part.step)
            for part in (own, *others)
            for place in part.phases
        )
        self._validations = sorted(
            (float(part.start[place]), float(part.end[place]))
            for part in (own, *others)
            for place in part.phases
            if part.kind[place] == "validation"
            and part.end[place] - part.start[place] > SHORTEST * (end - begin)
        )
        episodes = own.episodes
        self._first = min((float(own.start[place]) for place in episodes), default=begin)
        self._done = max((float(own.end[place]) for place in episodes), default=begin)
        self._last = max(episodes, key=lambda place: own.end[place], default=None)

    def of_learner(self, lane: int) -> Iterator[dict[str, Any]]:
        own = self._own
        for place in own.phases:
            if own.kind[place] == "waiting":
                reason = f"It waits for the episodes of step {own.step}{self._slowest()}."
                yield from self._wait(lane, own.start[place], own.end[place], reason)

    def of_engine(self, lane: int, requests: Moments) -> Iterator[dict[str, Any]]:
        for start, end in _gaps(requests, self._begin, self._end):
            inside = min(end, self._done)
            yield from self._wait(lane, start, min(end, self._first), NO_EPISODE)
            yield from self._wait(lane, max(start, self._first), inside, NO_REQUEST)
            yield from self._for_update(lane, max(start, self._done), end)

    def of_slots(self, placed: Iterable[Placed]) -> list[dict[str, Any]]:
        """The times in which a place had no episode, the longest of them, in their order."""
        left = f"No episode is left for this place: the step waits for the others{self._slowest()}."
        found = []
        for lane, members in groupby(placed, key=lambda one: one[0]):
            here = [(part, float(part.start[at]), float(part.end[at])) for _, part, at in members]
            played = _union([(start, end) for _, start, end in here])
            newest = max((start for part, start, _ in here if part is self._own), default=-np.inf)
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
            step = before[-1] if before else self._own.step
            yield from self._wait(lane, first, last, f"{LEARNER_GOES_ON} {step}.")

    def _slowest(self) -> str:
        """The episode that ended last, and what took most of its time."""
        own, last = self._own, self._last
        if last is None:
            return ""
        seconds: dict[str, float] = {OWN: float(own.end[last] - own.start[last])}
        for place in np.flatnonzero(own.owner == own.owner[last]).tolist():
            kind = own.kind[place]
            if kind != EPISODE:
                took = float(own.end[place] - own.start[place])
                seconds[kind] = seconds.get(kind, 0.0) + took
                seconds[OWN] -= took
        most = max(seconds, key=seconds.__getitem__)
        where = own.process[last] or OWN_PROCESS
        name = f"{own.group[last]} episode {own.episode[last]}"
        return f"; the last to end is {name} in {where}, most of it {most}"

    def _wait(self, lane: int, start: float, end: float, reason: str) -> list[dict[str, Any]]:
        start, end = float(max(start, self._begin)), float(end)
        if end - start <= SHORTEST * (self._end - self._begin):
            return []
        begun, took = round(start - self._begin, 5), round(end - start, 5)
        return [{"lane": lane, "start": begun, "seconds": took, "reason": reason}]


def _gaps(played: Sequence[tuple[float, float]], begin: float, end: float) -> Moments:
    """The times between moments that do not overlap, and before and after them."""
    edges = [begin, *np.ravel(played).tolist(), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
