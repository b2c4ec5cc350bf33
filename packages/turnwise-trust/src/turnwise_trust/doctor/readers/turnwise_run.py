"""A run's folder of turnwise, of this version and of earlier ones."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns
from turnwise_trust.doctor.log import Event, Measured, Reason, Remark, Rollout, Setting
from turnwise_trust.doctor.readers.lines import numbers, objects, whole

LOGS = ("metrics.jsonl", "validation.jsonl")
COLUMNS = ("group", "reward", "success", "outcome", "parts", "actions", "tool_calls")
SETTINGS = (
    ("learning", "learning_rate"),
    ("learning", "max_gradient_norm"),
    ("train", "group_size"),
    ("train", "tasks_per_step"),
    ("train", "max_staleness"),
    ("rollout", "max_turn_tokens"),
    ("engine", "parity_bound"),
)
Row = Mapping[str, Any]


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
                yield row if isinstance(row, Remark) else _measured(row)
    if (reasons := folder / "no_signal.jsonl").is_file():
        for row in objects(reasons):
            if not isinstance(row, Remark) and (step := whole(row.get("step"))) is not None:
                yield Reason(step, str(row.get("reason")))
    yield from _examples(folder)


def _measured(row: Row) -> Measured:
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
    for section, key in SETTINGS:
        value = recipe.get(section, {}).get(key)
        if isinstance(value, int | float):
            yield Setting(f"{section}.{key}", float(value))


def _examples(folder: Path) -> Iterator[Event]:
    """The episodes of the last step that was recorded."""
    files = [f for f in RunFolder(folder).trajectory_files() if f.stem.startswith("step-")]
    if not files:
        yield Remark("it has no trajectories: episodes cannot be shown")
        return
    last = max(files, key=lambda file: file.stem)
    try:
        rows = read_columns(last, COLUMNS)
    except DataError as error:
        yield Remark(str(error))
        return
    yield from (_rollout(int(last.stem.removeprefix("step-")), row) for row in rows)


def _rollout(step: int, row: Row) -> Rollout:
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
