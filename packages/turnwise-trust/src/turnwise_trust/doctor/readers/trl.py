"""Logs of TRL 1.16 (`trainer/grpo_trainer.py`), of earlier ones as far as names are the same.

`trainer_state.json` of transformers has the numbers (`log_history`), in the output folder or in the
newest checkpoint; `completions/completions_STEP.parquet` has the texts, with `log_completions`:
step, prompt, completion, a column for each reward function, and the advantage.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise_trust.doctor.log import Event, Measured, Remark, Rollout
from turnwise_trust.doctor.readers.history import measured
from turnwise_trust.doctor.readers.lines import document, mapping, number, rows, said, whole

STATE = "trainer_state.json"
OTHERS = ("step", "prompt", "completion", "advantage")
"""Columns that are no rewards."""
REWARD = re.compile(r"rewards/([^/]+)(?:/mean)?")
ROWS = 256
"""Rows of a table that are read at once."""


def state_file(folder: Path) -> Path | None:
    """The newest state in a folder of TRL's; None where there is none."""
    found = folder.glob(f"checkpoint-*/{STATE}")
    # By their numbers: where a folder was copied, times say nothing.
    newest = sorted(found, key=lambda file: (len(file.parent.name), str(file)))[-1:]
    there = [file for file in (folder / STATE, *newest) if file.is_file()]
    return max(there, key=lambda file: file.stat().st_mtime, default=None)


def read_folder(folder: Path) -> Iterator[Event]:
    """An output folder: its state, and its completions."""
    rewards: set[str] = set()
    if (state := state_file(folder)) is not None:
        for event in read_state(state):
            rewards |= {found[1] for name in event.values if (found := REWARD.fullmatch(name))}
            yield event
    else:
        yield Remark(f"{folder.name} has no {STATE}: numbers of the updates are not known")
    files = sorted(folder.glob("**/completions_*.parquet"))
    if not files:
        yield Remark("it has no completions (log_completions): texts are not known")
    for file in files:
        yield from read_completions(file, rewards)


def read_state(file: Path) -> Iterator[Measured]:
    """The numbers of `log_history`."""
    for row in rows(mapping(document(file)).get("log_history")):
        yield from measured(row)


def read_completions(file: Path, rewards: Collection[str] = ()) -> Iterator[Event]:
    """The completions of a step; a group is the step's completions of one prompt. Columns named in
    `rewards` are rewards, or all with numbers where none is named: extra columns look alike."""
    try:
        table = pq.ParquetFile(file)
        if "completion" not in table.schema_arrow.names:
            yield Remark(f"{file.name} has no column completion, and was left out")
            return
        for batch in table.iter_batches(ROWS):
            for row in batch.to_pylist():
                yield _rollout(row, rewards or [name for name in row if name not in OTHERS])
    except (OSError, pa.ArrowInvalid) as error:
        yield Remark(f"{file.name} cannot be read: {error}")


def _rollout(row: Mapping[str, Any], rewards: Collection[str]) -> Event:
    found = {name: number(row.get(name)) for name in rewards}
    parts = {name: value for name, value in found.items() if value is not None and value == value}
    return Rollout(
        step=whole(row.get("step")),
        group=said(row.get("prompt")),
        # The table does not have the weights of its rewards.
        reward=sum(parts.values()) if parts else None,
        parts=parts,
        text=said(row.get("completion")),
    )
