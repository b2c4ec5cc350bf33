"""Trajectories as rows of Parquet files, which pandas, Polars and DuckDB open.

Not here: where the files lie (`run_folder.py`).
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from turnwise.errors import DataError
from turnwise.learning.signals.base import NOTHING, SignalArrays
from turnwise.tokens import Image
from turnwise.types import Trajectory, encodable

SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("prompt", pa.string()),
        ("group", pa.string()),
        ("episode", pa.int32()),
        ("parent", pa.int32()),
        ("first_turn", pa.int32()),
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("reward", pa.float64()),
        ("penalty", pa.float64()),
        ("parts", pa.string()),
        ("turn_rewards", pa.list_(pa.float64())),
        ("success", pa.bool_()),
        ("detail", pa.string()),
        ("answer", pa.string()),
        ("problem", pa.string()),
        ("turns", pa.int32()),
        ("tool_calls", pa.int32()),
        ("actions", pa.string()),
        ("ids", pa.list_(pa.int64())),
        ("source", pa.list_(pa.uint8())),
        ("turn", pa.list_(pa.int32())),
        ("version", pa.list_(pa.int32())),
        ("logprob", pa.list_(pa.float32())),
        ("contexts", pa.list_(pa.list_(pa.int64()))),
        (
            "images",
            pa.list_(
                pa.struct([("start", pa.int64()), ("length", pa.int64()), ("file", pa.string())])
            ),
        ),
        ("trained_logprob", pa.list_(pa.float32())),
        ("advantage", pa.list_(pa.float32())),
        ("value", pa.list_(pa.float32())),
    ]
)


def trajectory_row(
    trajectory: Trajectory,
    signals: SignalArrays = NOTHING,
    advantage: NDArray[np.float32] | None = None,
    trained_logprob: NDArray[np.float32] | None = None,
) -> dict[str, Any]:
    """A trajectory as a row of `SCHEMA`; None for an advantage is 0 on each token, and no values or
    log-probabilities in training are an empty list. `parts` is JSON. The task's secret is not
    written."""
    tokens, verdict = trajectory.tokens, trajectory.verdict
    turn_rewards = trajectory.turn_rewards
    return {
        "task": trajectory.task.id,
        "prompt": trajectory.task.prompt,
        "group": trajectory.group,
        "episode": trajectory.episode,
        "parent": trajectory.parent,
        "first_turn": trajectory.first_turn,
        "seed": trajectory.seed,
        "outcome": str(trajectory.outcome),
        "reward": trajectory.reward,
        "penalty": signals.penalty or 0.0,
        "parts": json.dumps(dict(verdict.parts) if verdict is not None else {}),
        "turn_rewards": turn_rewards if turn_rewards is not None else [],
        "success": verdict.success if verdict is not None else None,
        "detail": verdict.detail if verdict is not None else "",
        "answer": trajectory.answer,
        "problem": encodable(trajectory.problem),
        "turns": len(trajectory.turns),
        "tool_calls": trajectory.tool_calls,
        "actions": json.dumps([turn.action for turn in trajectory.turns], default=vars),
        "ids": tokens.ids,
        "source": tokens.source,
        "turn": tokens.turn,
        "version": tokens.version,
        "logprob": tokens.logprob,
        "contexts": tokens.contexts.tolist(),
        "images": [
            {"start": shown.start, "length": shown.length, "file": image_name(shown)}
            for shown in tokens.images
        ],
        "trained_logprob": trained_logprob if trained_logprob is not None else [],
        "advantage": advantage if advantage is not None else np.zeros(len(tokens), np.float32),
        "value": signals.values if signals.values is not None else [],
    }


def image_name(image: Image) -> str:
    """The name of an image's file in the folder `images`."""
    return f"{sha256(image.png).hexdigest()[:32]}.png"


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of one Parquet file. Raises DataError for a damaged file, and for one of an earlier
    version, which lacks columns."""
    try:
        rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    lacking = [name for name in SCHEMA.names if rows and name not in rows[0]]
    if lacking:
        raise DataError(
            f"{file} was written by an earlier version of turnwise: it has no {lacking[0]!r}; read "
            "it with that version"
        )
    return rows
