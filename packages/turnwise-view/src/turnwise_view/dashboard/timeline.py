"""Waits in a step, with reasons: lanes of the learner, the engine, and of episodes where they ran.

A lane of episodes is a place in a process, in which one is played after the other. Steps before and
after are drawn where they reach into this one, so that sampling ahead is seen.
"""

import heapq
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.timeline import EPISODE, LEARNER, read_timeline
from turnwise_view.dashboard.index import Index
from turnwise_view.dashboard.waits import OWN, OWN_PROCESS, Row, Waits, busy, rows_of

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
COLUMNS = ("lane", "kind", "episode", "step", "start", "seconds")
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
    own = rows_of(number, table)
    begin, end = min(row.start for row in own), max(row.end for row in own)
    beside = (number + offset for offset in BESIDE if number + offset > 0)
    others = [
        row
        for step in beside
        for row in rows_of(step, read_timeline(folder.timeline_file(step)), begin, end)
    ]
    return _laid_out(own, others, begin, end, _rows_of_episodes(folder, number, index))


def _rows_of_episodes(folder: RunFolder, step: int, index: Index) -> dict[tuple[str, int], int]:
    """The row of each episode of a step in its file, where that can be read."""
    try:
        found = index.table(folder.trajectory_file(str(step)))
    except DataError:
        return {}
    pairs = zip(found["group"].to_pylist(), found["episode"].to_pylist(), strict=True)
    return {pair: row for row, pair in enumerate(pairs)}


def _laid_out(
    own: list[Row], others: list[Row], begin: float, end: float, numbers: dict[tuple[str, int], int]
) -> dict[str, Any]:
    step = own[0].step
    lanes, spans, every = _Lanes(), _Spans(begin), [*own, *others]
    near = [row for row in every if row.end > begin and row.start < end]
    learner = lanes.of(LEARNER, 0)
    for row in (*own, *(row for row in near if row.step != step)):
        if row.process == LEARNER:
            spans.add(learner, row)
    requests = busy(near, begin, end)
    engine = lanes.of("engine", 0) if requests else None
    for first, last in requests:
        spans.put(engine or 0, "requests", step, first, last)
    slots = _slots([row for row in near if row.kind == EPISODE])
    placed = [(lanes.of(row.process or OWN_PROCESS, slot), row) for row, slot in slots]
    drawn = {}
    for lane, row in placed:
        spans.add(lane, row)
        if row.step == step:
            drawn[row.owner] = lane
    for row in own:
        if row.kind != EPISODE and row.owner in drawn:
            spans.add(drawn[row.owner], row)
    waits = Waits(step, every, begin, end)
    found = [
        *waits.of_learner(learner),
        *(waits.of_engine(engine, requests) if engine is not None else []),
        *waits.of_slots(placed),
    ]
    return {
        "step": step,
        "absent": None,
        "seconds": round(end - begin, DIGITS),
        "lanes": lanes.names,
        "kinds": list(spans.kinds),
        "episodes": [
            {
                "step": of,
                "group": group,
                "episode": episode,
                "row": numbers.get((group, episode)) if of == step else None,
            }
            for of, group, episode in spans.episodes
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
        self.columns: dict[str, list[float]] = {name: [] for name in COLUMNS}

    def add(self, lane: int, row: Row) -> None:
        episode = -1
        if row.group is not None and row.episode is not None:
            name = row.step, row.group, row.episode
            episode = self.episodes.setdefault(name, len(self.episodes))
        self.put(lane, row.kind, row.step, row.start, row.end, episode)

    def put(
        self, lane: int, kind: str, step: int, start: float, end: float, episode: int = -1
    ) -> None:
        number = self.kinds.setdefault(kind, len(self.kinds))
        begun, took = round(start - self._zero, DIGITS), round(end - start, DIGITS)
        values = (lane, number, episode, step, begun, took)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)


def _slots(episodes: list[Row]) -> list[tuple[Row, int]]:
    """Episodes, each with a slot of its process that is free for it: by processes and slots, and in
    the order in which they began."""
    found: list[tuple[Row, int]] = []
    ordered = sorted(episodes, key=lambda row: (row.process, row.start))
    for _, members in groupby(ordered, key=lambda row: row.process):
        free: list[int] = []
        taken: list[tuple[float, int]] = []
        for row in members:
            while taken and taken[0][0] <= row.start + SAME:
                heapq.heappush(free, heapq.heappop(taken)[1])
            slot = heapq.heappop(free) if free else len(taken)  # or a new one
            heapq.heappush(taken, (row.end, slot))
            found.append((row, slot))
    return sorted(found, key=lambda one: (one[0].process, one[1]))


def _totals(own: list[Row], slots: list[tuple[Row, int]]) -> list[dict[str, Any]]:
    """The seconds of a step's episodes by process and kind."""
    found: dict[str, dict[str, Any]] = {}
    for row in own:
        if row.process == LEARNER:
            continue
        name = row.process or OWN_PROCESS
        new: dict[str, Any] = {"process": name, "episodes": 0, "seconds": {OWN: 0.0}}
        one, took = found.setdefault(row.process, new), row.end - row.start
        if row.kind == EPISODE:
            one["episodes"] += 1
        else:
            one["seconds"][row.kind] = one["seconds"].get(row.kind, 0.0) + took
        one["seconds"][OWN] += took if row.kind == EPISODE else -took
    used = Counter(process for process, _ in {(row.process, slot) for row, slot in slots})
    for process, one in found.items():
        one["slots"] = used[process]
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
