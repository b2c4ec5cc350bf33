"""The times of a step as a Parquet file: what each episode and the learner did, when, and where.

`timeline/step-000012.parquet` has a row for each span. Times are seconds since 1970, by the clock
of the run's process, so that steps can be laid beside each other.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.errors import DataError
from turnwise.times import EpisodeTimes
from turnwise.types import Group, Trajectory

SCHEMA = pa.schema(
    [
        ("process", pa.dictionary(pa.int32(), pa.string())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("group", pa.dictionary(pa.int32(), pa.string())),
        ("episode", pa.int32()),
        # float32 would round seconds since 1970 to two minutes.
        ("start", pa.float64()),
        ("seconds", pa.float32()),
    ]
)
LEARNER = "learner"
"""The process of phases, which have no group and no episode."""
EPISODE = "episode"
"""The kind of a span that is a whole episode, beside those of its parts (`times.Doing`)."""
MOST_SPANS = 200_000
"""Spans of one step, at most: where there are more, each episode has one."""
Row = tuple[str, str, str | None, int | None, float, float]


def timeline_table(groups: Sequence[Group], phases: Iterable[tuple[str, float, float]]) -> pa.Table:
    """The spans of a step's episodes and of phases (name, start, end), in `time.monotonic()`."""
    zero = _zero()
    timed = [(one, one.times) for one in _episodes(groups) if one.times is not None]
    spans = sum(1 + len(times.spans) for _, times in timed)
    rows: list[Row] = [
        (LEARNER, name, None, None, zero + start, end - start) for name, start, end in phases
    ]
    for episode, times in timed:
        rows += _rows(episode, times, zero, whole=spans > MOST_SPANS)
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)  # zip makes none of no rows
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


@cache
def _zero() -> float:
    """The time of day at which `time.monotonic()` was 0: once for all steps of a process, which
    would else lie beside each other wrongly by what passes between two looks at a clock."""
    return time.time() - time.monotonic()


def read_timeline(file: Path) -> pa.Table:
    """The rows of a step's file, none without one. Raises DataError for a damaged one."""
    try:
        return pq.read_table(file, schema=SCHEMA) if file.is_file() else SCHEMA.empty_table()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{file} cannot be read: {error}") from error


def _episodes(groups: Sequence[Group]) -> Iterator[Trajectory]:
    for group in groups:
        yield from (*group.trajectories, *group.baseline_rollouts, *group.oversampled)


def _rows(episode: Trajectory, times: EpisodeTimes, zero: float, whole: bool) -> list[Row]:
    process, group, number = times.process, episode.group, episode.episode
    begun = zero + times.begun
    rows: list[Row] = [(process, EPISODE, group, number, begun, times.seconds)]
    if not whole:
        rows += [
            (process, str(doing), group, number, begun + start, end - start)
            for doing, start, end in times.spans
        ]
    return rows
