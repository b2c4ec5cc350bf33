"""A run's folder of turnwise, of this version and of earlier ones."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from turnwise.errors import DataError
from turnwise.storage.audits import audits, read_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns, rows_of_tasks
from turnwise_trust.copying import COLUMNS as COPYING
from turnwise_trust.copying import COPIED, copied_share
from turnwise_trust.doctor.log import Alarm, Event, Measured, Reason, Remark, Rollout, Setting
from turnwise_trust.doctor.readers.lines import Row, mapping, numbers, objects, whole

LOGS = ("metrics.jsonl", "validation.jsonl")
COLUMNS = ("group", "reward", "success", "outcome", "parts", "actions", "tool_calls")
READ = 24
"""Steps whose trajectories are read for what is copied, at most."""


def is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file() and (folder / "trajectories").is_dir()


def read_run(folder: Path) -> Iterator[Event]:
    """The numbers of a run's steps and evaluations, what it says itself, and examples."""
    yield from _settings(folder / "config.toml")
    if not (folder / LOGS[0]).is_file():
        yield Remark("it has no step of RL")
    for name in LOGS:
        if (folder / name).is_file():
            for row in objects(folder / name):
                yield row if isinstance(row, Remark) else measured(row)
    if (reasons := folder / "no_signal.jsonl").is_file():
        for row in objects(reasons):
            if not isinstance(row, Remark) and (step := whole(row.get("step"))) is not None:
                yield Reason(step, str(row.get("reason")))
    yield from _alarms(folder)
    yield from _episodes(folder)


def measured(row: Row) -> Measured:
    """A step's numbers, and shares that follow from its counts."""
    found = numbers(row)
    episodes = found.get("rollout/episodes")
    if episodes:
        cut = sum(n for name, n in found.items() if name.startswith("outcome/truncated_"))
        found["rollout/truncated"] = cut / episodes
        found["rollout/ungraded_share"] = found.get("rollout/ungraded", 0.0) / episodes
    return Measured(whole(row.get("step")) or 0, found)


def _settings(file: Path) -> Iterator[Event]:
    try:
        recipe = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield Remark(f"config.toml cannot be read: {error}")
        return
    value = mapping(recipe.get("rollout")).get("max_turn_tokens")
    if isinstance(value, int):
        yield Setting("rollout.max_turn_tokens", float(value))


def _alarms(folder: Path) -> Iterator[Event]:
    """The alarms that rang while it trained."""
    if "alarms" not in audits(folder):
        return
    for one in read_audit(folder, "alarms")["findings"]:
        yield Alarm(one)


def _episodes(folder: Path) -> Iterator[Event]:
    """The copying in some of the steps, and the episodes of the last one as examples."""
    files = sorted(
        (one for one in RunFolder(folder).trajectory_files() if one.stem.startswith("step-")),
        key=lambda file: file.stem,
    )
    if not files:
        yield Remark("it has no trajectories: episodes cannot be shown")
        return
    try:
        for file in files[:: -(-len(files) // READ)]:
            share = copied_share(rows_of_tasks(read_columns(file, COPYING)))
            if share is not None:
                yield Measured(_step(file), {COPIED: share})
        rows = rows_of_tasks(read_columns(files[-1], COLUMNS))
    except DataError as error:
        yield Remark(str(error))
        return
    yield from (rollout_of(_step(files[-1]), row) for row in rows)


def _step(file: Path) -> int:
    return int(file.stem.removeprefix("step-"))


def rollout_of(step: int, row: Row) -> Rollout:
    """An episode of a row, as an example: the numbers of its step count it already."""
    actions = json.loads(row["actions"])
    outcome = str(row["outcome"])
    return Rollout(
        step=step,
        group=str(row["group"]),
        reward=row["reward"] if row["success"] is not None else None,
        parts=numbers(json.loads(row["parts"])),
        text="\n".join(str(one.get("text", "")) for one in actions),
        success=row["success"],
        truncated=outcome.startswith("truncated_"),
        malformed=any(one.get("error") for one in actions),
        tool_calls=row["tool_calls"],
        counted=False,
    )
