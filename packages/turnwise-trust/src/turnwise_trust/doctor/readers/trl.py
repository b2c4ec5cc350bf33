"""Logs of TRL 1.16 (`trainer/grpo_trainer.py`), of earlier ones as far as names are the same.

`trainer_state.json` of transformers has the numbers (`log_history`), in the output folder or in the
newest checkpoint; `completions/completions_STEP.parquet` has the texts, with `log_completions`:
step, prompt, completion, a column for each reward function, and the advantage.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.errors import DataError
from turnwise_trust.doctor.log import Event, Remark, Rollout
from turnwise_trust.doctor.readers.history import measured
from turnwise_trust.doctor.readers.lines import number, said, whole

STATE = "trainer_state.json"
OTHERS = ("step", "prompt", "completion", "advantage")
"""Columns that are no rewards."""
ROWS = 256
"""Rows of a table that are read at once."""


def state_file(folder: Path) -> Path | None:
    """The newest state in a folder of TRL's; None where there is none."""
    found = [folder / STATE, *folder.glob(f"checkpoint-*/{STATE}")]
    there = [file for file in found if file.is_file()]
    return max(there, key=lambda file: (file.stat().st_mtime, str(file)), default=None)


def read_folder(folder: Path) -> Iterator[Event]:
    """An output folder: its state, and its completions."""
    if (state := state_file(folder)) is not None:
        yield from read_state(state)
    else:
        yield Remark(f"{folder.name} has no {STATE}: numbers of the updates are not known")
    files = sorted(folder.glob("**/completions_*.parquet"))
    if not files:
        yield Remark("it has no completions (log_completions): texts are not known")
    for file in files:
        yield from read_completions(file)


def read_state(file: Path) -> Iterator[Event]:
    """The numbers of `log_history`."""
    try:
        history = json.loads(file.read_bytes())["log_history"]
        rows = [row for row in history if isinstance(row, Mapping)]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{file} is damaged or no state of a trainer: {error!r}") from None
    for row in rows:
        yield from measured(row)


def read_completions(file: Path) -> Iterator[Event]:
    """The completions of a step; a group is the step's completions of one prompt."""
    try:
        for batch in pq.ParquetFile(file).iter_batches(ROWS):
            yield from map(_rollout, batch.to_pylist())
    except (OSError, pa.ArrowInvalid) as error:
        yield Remark(f"{file.name} cannot be read: {error}")


def _rollout(row: Mapping[str, Any]) -> Event:
    rewards = {name: number(value) for name, value in row.items() if name not in OTHERS}
    parts = {name: value for name, value in rewards.items() if value is not None and value == value}
    return Rollout(
        step=whole(row.get("step")),
        group=said(row.get("prompt")),
        reward=sum(parts.values()) if parts else None,
        parts=parts,
        text=said(row.get("completion")),
    )
