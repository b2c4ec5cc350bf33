"""Rollouts of NeMo Gym 0.7 (`gym eval run`, `rollouts.jsonl`).

A line is one rollout: `_ng_task_index`, `_ng_rollout_index`, `responses_create_params` (what was
asked), `response` (OpenAI's Responses: output items, usage, incomplete_details), `reward`, and
numbers of the resources server's verifier. It has no steps of a training.
"""

from collections.abc import Iterator
from pathlib import Path

from turnwise_trust.doctor.log import Event, Remark, Rollout
from turnwise_trust.doctor.readers.lines import (
    Row,
    mapping,
    number,
    numbers,
    objects,
    rows,
    said,
    whole,
)

ASKED = "responses_create_params"
CALL = "function_call"


def read_rollouts(file: Path) -> Iterator[Event]:
    """Rollouts of a file; a group is those of one task."""
    for row in objects(file):
        yield row if isinstance(row, Remark) else _rollout(row)


def _rollout(row: Row) -> Event:
    response = mapping(row.get("response"))
    items = rows(response.get("output"))
    parts = {k: v for k, v in row.items() if not k.startswith("_ng_") and k != "reward"}
    return Rollout(
        group=str(row["_ng_task_index"]) if "_ng_task_index" in row else None,
        reward=number(row.get("reward")),
        parts=numbers(parts),
        text="\n".join(said(one.get("content")) for one in items if one.get("type") == "message"),
        length=whole(mapping(response.get("usage")).get("output_tokens")),
        truncated=bool(response.get("incomplete_details")) if response else None,
        tool_calls=sum(one.get("type") == CALL for one in items) if items else None,
    )
