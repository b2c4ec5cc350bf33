"""Trajectories as rows of Parquet files, which pandas, Polars and DuckDB open."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from turnwise.capture import Capture
from turnwise.errors import DataError
from turnwise.learning.signals.base import NOTHING, SignalArrays
from turnwise.tokens import Image, KeptTokens, Source, Tokens
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
    encodable,
)

SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("prompt", pa.string()),
        ("task_prompt", pa.string()),
        ("group", pa.string()),
        ("episode", pa.int32()),
        ("parent", pa.int32()),
        ("first_turn", pa.int32()),
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("reward", pa.float64()),
        ("penalty", pa.float64()),
        ("parts", pa.string()),
        ("turn_parts", pa.string()),
        ("turn_rewards", pa.list_(pa.float64())),
        ("success", pa.bool_()),
        ("detail", pa.string()),
        ("answer", pa.string()),
        ("problem", pa.string()),
        ("capture", pa.string()),
        ("turns", pa.int32()),
        ("roles", pa.list_(pa.string())),
        ("tool_calls", pa.int32()),
        ("actions", pa.string()),
        ("steps", pa.string()),
        ("tool_seconds", pa.list_(pa.list_(pa.float32()))),
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
        ("experts", pa.binary()),
        ("kept_ids", pa.binary()),
        ("kept_counts", pa.binary()),
        ("trained_logprob", pa.list_(pa.float32())),
        ("entropy", pa.list_(pa.float32())),
        ("loss_weight", pa.list_(pa.float32())),
        ("advantage", pa.list_(pa.float32())),
        ("value", pa.list_(pa.float32())),
    ]
)

LATER: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "task_prompt": lambda row: row["prompt"],
    "turn_parts": lambda row: "{}",
    "roles": lambda row: [""] * row["turns"],
    **dict.fromkeys(("capture", "experts", "kept_ids", "kept_counts"), lambda row: None),
    **dict.fromkeys(("tool_seconds", "trained_logprob", "entropy", "loss_weight"), lambda row: []),
}
"""Columns that earlier versions did not write, and what stands for them in a row without."""

REFINEMENT = "refinement"
"""The beginning of the names of groups of a judge's replies: they are of no task."""

TOKENS_TOGETHER = 65_536
"""Tokens of trajectories that are read together, as a group of rows, about."""

TOKENS = {
    "ids": np.int64,
    "source": np.uint8,
    "turn": np.int32,
    "version": np.int32,
    "logprob": np.float32,
}
"""The columns of each token's provenance, and their types in `Tokens`."""


def trajectory_row(
    trajectory: Trajectory,
    signals: SignalArrays = NOTHING,
    advantage: NDArray[np.float32] | None = None,
    trained: NDArray[np.void] | None = None,
) -> dict[str, Any]:
    """A trajectory as a row of `SCHEMA`, without the task's secret. No advantage is 0 on each
    token; missing values and numbers (`signals.base.NUMBERS`) are an empty list.
    `tool_seconds` has a list for each turn, None where nothing was measured. `parts`, `turn_parts`,
    `actions` and `steps` are JSON; `experts`, `kept_ids` and `kept_counts` are .npy files, or None.
    `prompt` is the first message, `task_prompt` the task's own."""
    tokens, verdict = trajectory.tokens, trajectory.verdict
    turn_rewards, capture = trajectory.turn_rewards, trajectory.capture
    turn_parts = {} if verdict is None else verdict.turn_parts
    return {
        "task": trajectory.task.id,
        "prompt": trajectory.prompt,
        "task_prompt": trajectory.task.prompt,
        "group": trajectory.group,
        "episode": trajectory.episode,
        "parent": trajectory.parent,
        "first_turn": trajectory.first_turn,
        "seed": trajectory.seed,
        "outcome": str(trajectory.outcome),
        "reward": trajectory.reward,
        "penalty": signals.penalty or 0.0,
        "parts": json.dumps(dict(verdict.parts) if verdict is not None else {}),
        "turn_parts": json.dumps({name: list(numbers) for name, numbers in turn_parts.items()}),
        "turn_rewards": turn_rewards if turn_rewards is not None else [],
        "success": verdict.success if verdict is not None else None,
        "detail": verdict.detail if verdict is not None else "",
        "answer": trajectory.answer,
        "problem": encodable(trajectory.problem),
        "capture": None if capture is None else json.dumps(vars(capture)),
        "turns": len(trajectory.turns),
        "roles": [turn.role for turn in trajectory.turns],
        "tool_calls": trajectory.tool_calls,
        "actions": json.dumps([turn.action for turn in trajectory.turns], default=vars),
        "steps": json.dumps([_step_values(turn.step) for turn in trajectory.turns], default=vars),
        "tool_seconds": [
            [] if turn.step is None else [result.seconds or None for result in turn.step.results]
            for turn in trajectory.turns
        ],
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
        "experts": None if tokens.experts is None else _saved(tokens.experts),
        "kept_ids": None if tokens.kept is None else _saved(tokens.kept.ids),
        "kept_counts": None if tokens.kept is None else _saved(tokens.kept.counts),
        "trained_logprob": trained["logprob"] if trained is not None else [],
        "entropy": trained["entropy"] if trained is not None else [],
        "loss_weight": trained["loss_weight"] if trained is not None else [],
        "advantage": advantage if advantage is not None else np.zeros(len(tokens), np.float32),
        "value": signals.values if signals.values is not None else [],
    }


def trajectory_of(row: Mapping[str, Any], task: Task) -> Trajectory:
    """The trajectory of a row, with its verdict, and the rewards that its turns were trained by;
    without images, snapshots and seconds."""
    turns = [
        Turn(_action_of(action), step and step_of(step), role)
        for action, step, role in zip(
            json.loads(row["actions"]), json.loads(row["steps"]), row["roles"], strict=True
        )
    ]
    arrays: dict[str, Any] = {name: np.array(row[name], kind) for name, kind in TOKENS.items()}
    arrays["contexts"] = np.array(row["contexts"], np.int64).reshape(-1, 2)
    experts, kept_ids = _loaded(row.get("experts")), _loaded(row.get("kept_ids"))
    kept = None if kept_ids is None else KeptTokens(kept_ids, _loaded(row["kept_counts"]))
    tokens = Tokens(**arrays, experts=experts, kept=kept)
    verdict = None
    if row["success"] is not None:
        rewards = row["turn_rewards"]
        parts, turn_parts = json.loads(row["parts"]), json.loads(row["turn_parts"])
        # A trajectory's reward has those of its turns in it, a verdict's does not.
        outcome_reward = row["reward"] - sum(rewards)
        verdict = Verdict(outcome_reward, row["success"], parts, row["detail"], turn_parts, rewards)
    return Trajectory(
        task,
        row["group"],
        row["episode"],
        row["seed"],
        tokens,
        tuple(turns),
        Outcome(row["outcome"]),
        verdict,
        parent=row["parent"],
        first_turn=row["first_turn"],
        problem=row["problem"],
        capture=None if row["capture"] is None else Capture(**json.loads(row["capture"])),
        first=Observation(row["prompt"], Source.USER),
    )


def _saved(array: NDArray[np.integer]) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _loaded(file: bytes | None) -> Any:
    return None if file is None else np.load(BytesIO(file))


def groups_of(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The groups of saved trajectories; tasks have no secrets."""
    return [
        Group(
            name,
            tuple(trajectory_of(row, Task(row["task"], row["task_prompt"])) for row in members),
        )
        for name, members in groupby(rows, key=lambda row: str(row["group"]))
    ]


def rows_of_tasks(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of episodes, without the replies of a judge that was trained beside them."""
    return [row for row in rows if not row["group"].startswith(f"{REFINEMENT}/")]


def rows_together(rows: Sequence[Mapping[str, Any]]) -> int:
    """The number of rows to write as a group, so that a long trajectory can be read alone."""
    tokens = sum(len(row["ids"]) for row in rows)
    return max(1, TOKENS_TOGETHER * len(rows) // max(1, tokens))


def image_name(image: Image) -> str:
    """The name of an image's file in the folder `images`."""
    return f"{sha256(image.png).hexdigest()[:32]}.png"


def read_rows(
    file: Path, outcome: str | None = None, most: int | None = None
) -> list[dict[str, Any]]:
    """The rows of one Parquet file, or the first ones of an outcome; raises as `read_table`."""
    # Cut before: as Python's numbers, what a table holds takes many times its time and memory.
    rows: list[dict[str, Any]] = read_table(file, outcome).slice(0, most).to_pylist()
    return rows


def read_table(file: Path, outcome: str | None = None) -> pa.Table:
    """The rows of one Parquet file, or those of an outcome. Raises DataError for a damaged file,
    and for an earlier version's that lacks more than columns of `LATER`."""
    with _reading(file):
        table = pq.read_table(file, filters=outcome and [("outcome", "==", outcome)])
    known = {*table.column_names, *LATER}
    if lacking := [name for name in SCHEMA.names if name not in known]:
        raise DataError(
            f"{file} was written by an earlier version of turnwise: it has no {lacking[0]!r}; read "
            "it with that version"
        )
    return completed(table)


def completed(table: pa.Table) -> pa.Table:
    """Give an earlier version's table the columns of `LATER` that it lacks."""
    for name in [name for name in LATER if name not in table.column_names]:
        # These two are all that the functions of LATER read.
        rows, field = table.select(["prompt", "turns"]).to_pylist(), SCHEMA.field(name)
        table = table.append_column(field, pa.array(map(LATER[name], rows), field.type))
    return table


def read_columns(file: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Some columns of a file's rows, those of `LATER` completed. DataError for a damaged file."""
    with _reading(file):
        lacking = set(names).intersection(LATER).difference(pq.read_schema(file).names)
        there = [name for name in names if name not in lacking]
        rows = pq.read_table(file, columns=there).to_pylist()
    return [{**{name: LATER[name](row) for name in lacking}, **row} for row in rows]


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{file} cannot be read: {error}") from error


def _step_values(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    shown = step.observation
    return {
        "observation": None if shown is None else [shown.content, int(shown.source)],
        "results": [[vars(one.call), one.content, one.ok] for one in step.results],
        "ended": [step.done, step.abort, step.truncated],
        "reward": step.reward,
        "forgets": step.forgets,
    }


def step_of(values: Mapping[str, Any]) -> Step:
    """The step that a row of `steps` describes."""
    shown = values["observation"]
    results = (ToolResult(ToolCall(**call), content, ok) for call, content, ok in values["results"])
    observation = None if shown is None else Observation(shown[0], Source(shown[1]))
    done, abort, truncated = values["ended"]
    forgets = values.get("forgets", False)  # earlier versions did not write it
    return Step(observation, tuple(results), done, abort, truncated, values["reward"], forgets)


def _action_of(values: Mapping[str, Any]) -> Action:
    calls = tuple(ToolCall(**call) for call in values["calls"])
    return Action(**{**values, "calls": calls})
