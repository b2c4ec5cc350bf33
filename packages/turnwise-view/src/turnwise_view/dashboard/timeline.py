"""Waits in a step, with reasons: lanes of the learner, the engine, and of episodes where they ran.

A lane of episodes is a place in a process, in which one is played after the other. Steps before and
after are drawn where they reach into this one, so that sampling ahead is seen.
"""

import heapq
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.timeline import EPISODE, LEARNER, read_timeline
from turnwise_view.dashboard.index import Index
from turnwise_view.dashboard.step_rows import Rows
from turnwise_view.dashboard.waits import OWN, OWN_PROCESS, Waits, busy

NOTHING = "No step has been timed yet: the run has no timing.jsonl."
EARLIER = (
    "Of this step only the seconds of its phases are known: an earlier version of turnwise wrote "
    "it, or the run was interrupted just then."
)
WAITS_FOR_EPISODES = "The learner waits for the step's episodes."
BESIDE = (-2, -1, 1, 2)
"""Steps beside the one that is shown, of which what reaches into it is shown too."""
SAME = 1e-5
"""Seconds by which an episode may seem to begin before the one ended that had its place."""
DIGITS = 5
"""Decimal places of seconds."""


def timeline(path: Path, step: int | None, index: Index) -> dict[str, Any]:
    """The spans of a step, in seconds from its beginning, by columns; of the newest one where none
    is named."""
    folder = RunFolder.open(path)
    lines = folder.lines("timing.jsonl")
    number = step if step is not None or not lines else int(lines[-1]["step"])
    if number is None:
        return {"step": None, "absent": NOTHING}
    table = read_timeline(folder.timeline_file(number))
    if table.num_rows == 0:
        return _phases_alone(number, lines)
    own = Rows.of(number, table)
    others = [
        Rows.of(number + offset, read_timeline(folder.timeline_file(number + offset)))
        for offset in BESIDE
        if number + offset > 0
    ]
    return _laid_out(own, others, _rows_of_episodes(folder, number, index))


def _rows_of_episodes(folder: RunFolder, step: int, index: Index) -> dict[tuple[str, int], int]:
    """The row of each episode of a step in its file, where that can be read."""
    try:
        found = index.table(folder.trajectory_file(str(step)))
    except DataError:
        return {}
    pairs = zip(found["group"].to_pylist(), found["episode"].to_pylist(), strict=True)
    return {pair: row for row, pair in enumerate(pairs)}


def _laid_out(own: Rows, others: list[Rows], rows: dict[tuple[str, int], int]) -> dict[str, Any]:
    begin, end = min(own.start), max(own.end)
    lanes, spans = _Lanes(), _Spans(begin)
    learner = lanes.of(LEARNER, 0)
    every = [own, *others]
    for part in every:
        for place in part.phases:
            if part is own or (part.end[place] > begin and part.start[place] < end):
                spans.add(learner, part, place)
    requests = busy(every, begin, end)
    engine = lanes.of("engine", 0) if requests else None
    for first, last in requests:
        spans.put(engine or 0, "requests", own.step, first, last)
    slots = _slots(every, begin, end)
    where = np.full((2, max(own.owner) + 1), -1)
    for part, place, slot in slots:
        lane = lanes.of(part.process[place] or OWN_PROCESS, slot)
        number = spans.add(lane, part, place)
        if part is own:
            where[:, own.owner[place]] = lane, number
    spans.add_parts(own, where)
    waits = Waits(own, others, begin, end)
    found = [
        *waits.of_learner(learner),
        *(waits.of_engine(engine, requests) if engine is not None else []),
        *waits.of_slots(
            (lanes.of(part.process[place] or OWN_PROCESS, slot), part, place)
            for part, place, slot in slots
        ),
    ]
    return {
        "step": own.step,
        "absent": None,
        "seconds": round(end - begin, DIGITS),
        "lanes": lanes.names,
        "kinds": list(spans.kinds),
        "episodes": [
            {
                "step": one[0],
                "group": one[1],
                "episode": one[2],
                "row": rows.get((one[1], one[2])) if one[0] == own.step else None,
            }
            for one in spans.episodes
        ],
        "spans": spans.columns,
        "waits": found,
        "totals": _totals(own, slots),
    }


class _Lanes:
    """The lanes in the order in which they are asked for, each a process and a slot in it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}

    def of(self, process: str, slot: int) -> int:
        return self._numbers.setdefault((process, slot), len(self._numbers))

    @property
    def names(self) -> list[dict[str, Any]]:
        return [{"process": process, "slot": slot} for process, slot in self._numbers]


class _Spans:
    """Spans by columns; kinds and episodes by their numbers, -1 for none."""

    def __init__(self, zero: float) -> None:
        self._zero = zero
        self.kinds: dict[str, int] = {}
        self.episodes: dict[tuple[int, str, int], int] = {}
        self._columns: list[list[float]] = [[] for _ in range(6)]

    def add(self, lane: int, part: Rows, place: int) -> int:
        """Add a row of a step; gives the number of its episode."""
        group, number = part.group[place], part.episode[place]
        episode = -1
        if group is not None and number is not None:
            name = part.step, group, number
            episode = self.episodes.setdefault(name, len(self.episodes))
        start, end = part.start[place], part.end[place]
        self.put(lane, part.kind[place], part.step, start, end, episode)
        return episode

    def add_parts(self, rows: Rows, where: NDArray[np.int64]) -> None:
        """Add all parts of a step's episodes, whose lanes and numbers `where` has by owner, -1 for
        those that are not drawn."""
        places = [place for place in rows.parts if where[0, rows.owner[place]] >= 0]
        lanes, episodes = where[:, rows.owner[places]]
        starts = np.asarray(rows.start)[places]
        columns = (
            lanes,
            [self.kinds.setdefault(rows.kind[place], len(self.kinds)) for place in places],
            episodes,
            np.full(len(places), rows.step),
            starts - self._zero,
            np.asarray(rows.end)[places] - starts,
        )
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(np.asarray(values).tolist())

    def put(
        self, lane: int, kind: str, step: int, start: float, end: float, episode: int = -1
    ) -> None:
        number = self.kinds.setdefault(kind, len(self.kinds))
        values = (lane, number, episode, step, start - self._zero, end - start)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    @property
    def columns(self) -> dict[str, list[float]]:
        names = ("lane", "kind", "episode", "step", "start", "seconds")
        rounded = (np.round(column, DIGITS).tolist() for column in self._columns)
        return dict(zip(names, rounded, strict=True))


def _slots(parts: list[Rows], begin: float, end: float) -> list[tuple[Rows, int, int]]:
    """The episodes that reach into a time, each with a slot of its process that is free for it:
    by processes, and in the order in which they began."""
    episodes = [
        (part.process[place], part.start[place], part, place)
        for part in parts
        for place in part.episodes
        if part.end[place] > begin and part.start[place] < end
    ]
    episodes.sort(key=lambda one: one[:2])
    found: list[tuple[Rows, int, int]] = []
    for _, members in groupby(episodes, key=lambda one: one[0]):
        free: list[int] = []
        taken: list[tuple[float, int]] = []
        for _, start, part, place in members:
            while taken and taken[0][0] <= start + SAME:
                heapq.heappush(free, heapq.heappop(taken)[1])
            slot = heapq.heappop(free) if free else len(taken)
            heapq.heappush(taken, (part.end[place], slot))
            found.append((part, place, slot))
    return sorted(found, key=lambda one: (one[0].process[one[1]], one[2]))


def _totals(own: Rows, slots: list[tuple[Rows, int, int]]) -> list[dict[str, Any]]:
    """The seconds of a step's episodes by process and kind."""
    names: dict[tuple[str, str], int] = {}
    both = zip(own.process, own.kind, strict=True)
    of_row = [names.setdefault(pair, len(names)) for pair in both]
    counts = np.bincount(of_row)
    sums = np.bincount(of_row, np.asarray(own.end) - np.asarray(own.start))
    found: dict[str, dict[str, Any]] = {}
    for (process, kind), number in names.items():
        if process == LEARNER:
            continue
        one = found.setdefault(process, {"process": process, "episodes": 0, "seconds": {OWN: 0.0}})
        took = float(sums[number])
        if kind == EPISODE:
            one["episodes"] = int(counts[number])
            one["seconds"][OWN] += took
        else:
            one["seconds"][kind] = took
            one["seconds"][OWN] -= took
    used = Counter(process for process, _ in {(part.process[at], s) for part, at, s in slots})
    for process, one in found.items():
        one["slots"], one["process"] = used[process], process or OWN_PROCESS
    return list(found.values())


def _phases_alone(step: int, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The phases of a step without a file of times, by the seconds in timing.jsonl. Sampling ahead
    began before the step did, and so before 0."""
    chosen = next((line for line in lines if line["step"] == step), None)
    if chosen is None:
        absent = NOTHING if not lines else f"There is no step {step} in timing.jsonl."
        return {"step": step, "absent": absent}
    waiting, update = chosen.get("seconds/waiting", 0.0), chosen.get("seconds/update", 0.0)
    rollout = chosen.get("seconds/rollout", 0.0)
    begin = min(0.0, waiting - rollout)
    lanes, spans = _Lanes(), _Spans(begin)
    learner, sampling = lanes.of(LEARNER, 0), lanes.of("all episodes", 0)
    spans.put(sampling, EPISODE, step, waiting - rollout, waiting)
    spans.put(learner, "waiting", step, 0.0, waiting)
    spans.put(learner, "update", step, waiting, waiting + update)
    wait = {"lane": learner, "start": -begin, "seconds": waiting, "reason": WAITS_FOR_EPISODES}
    return {
        "step": step,
        "absent": EARLIER,
        "seconds": round(waiting + update - begin, DIGITS),
        "lanes": lanes.names,
        "kinds": list(spans.kinds),
        "episodes": [],
        "spans": spans.columns,
        "waits": [wait] if waiting else [],
        "totals": [],
    }
