"""Trajectories in ATIF 1.4 to 1.8, the interchange format of the Harbor framework.

One object is one episode: steps by system, user and agent, with tool calls, and `final_metrics`.
The format has no word for a reward: one is read from `final_metrics.extra` or `extra`, where
`turnwise export` and Harbor's exporters put it. There are no steps of a training.
"""

from collections.abc import Iterator
from pathlib import Path

from turnwise.errors import DataError
from turnwise_trust.doctor.log import Event, Remark, Rollout
from turnwise_trust.doctor.readers.lines import (
    Row,
    document,
    mapping,
    number,
    numbers,
    objects,
    rows,
    said,
    whole,
)

VERSION = "schema_version"
LIMITS = "truncated"


def is_atif(value: Row) -> bool:
    return str(value.get(VERSION)).startswith("ATIF-")


def read_folder(folder: Path) -> Iterator[Event]:
    """The trajectories of a folder, a file for each."""
    for file in sorted(folder.glob("**/*.json")):
        yield from read_file(file)


def read_file(file: Path) -> Iterator[Event]:
    """A trajectory as JSON, or several as JSON lines."""
    if file.suffix == ".jsonl":
        for row in objects(file):
            yield row if isinstance(row, Remark) else _rollout(row)
        return
    try:
        value = document(file)
    except DataError as error:
        yield Remark(f"{error}, and was left out")
        return
    if isinstance(value, dict) and is_atif(value):
        yield _rollout(value)


def _rollout(row: Row) -> Event:
    turns = [one for one in rows(row.get("steps")) if one.get("source") == "agent"]
    final = mapping(row.get("final_metrics"))
    facts = {**mapping(row.get("extra")), **mapping(final.get("extra"))}
    outcome = str(facts.get("outcome", ""))
    return Rollout(
        group=str(facts["task"]) if facts.get("task") else None,
        reward=number(facts.get("reward")),
        parts=numbers(facts.get("parts")),
        text="\n".join(said(one.get("message")) for one in turns),
        length=whole(final.get("total_completion_tokens")),
        success=facts["success"] if isinstance(facts.get("success"), bool) else None,
        truncated=outcome.startswith(LIMITS) if outcome else None,
        tool_calls=sum(len(rows(one.get("tool_calls"))) for one in turns),
    )
