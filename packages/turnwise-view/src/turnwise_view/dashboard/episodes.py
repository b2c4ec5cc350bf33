"""Episodes: found by what they are, shown as a conversation, and compared within their group."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Source
from turnwise_view.dashboard.index import (
    LIGHT,
    Index,
    lengths,
    read_row,
    read_rows,
    rows_calling,
    rows_with,
    rows_with_problem,
)
from turnwise_view.dashboard.runs import file_kind, in_order, row_count

MOST = 200
"""Episodes of one page, at most."""
PATIENCE = 0.4
"""Seconds after which a page that is full waits for no more files to be counted."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Query:
    """The conditions of a search; None and empty texts are for anything."""

    file: str = ""
    text: str = ""
    outcome: str = ""
    tool: str = ""
    error: str = ""
    group: str = ""
    success: bool | None = None
    low: float | None = None
    high: float | None = None
    step: int | None = None
    offset: int = 0
    limit: int = 50

    @property
    def chooses(self) -> bool:
        """Whether some rows of a file may not fit."""
        words = (self.text, self.outcome, self.tool, self.error, self.group)
        return any(words) or not (self.success is self.low is self.high is None)


def find(path: Path, query: Query, index: Index) -> dict[str, Any]:
    """A page of the episodes that fit, the newest step first, and how many there are.

    A run may have more files than can be read while a page waits: the page is whole, and where
    `complete` is False, `total` is how many were found within `PATIENCE`.
    """
    folder, begun = RunFolder.open(path), time.monotonic()
    found: list[dict[str, Any]] = []
    total, end = 0, query.offset + min(query.limit, MOST)
    files = _files(folder, query)
    for number, file in enumerate(files, 1):
        rows = _fitting(file, query, index)
        shown = list(rows[max(0, query.offset - total) : max(0, end - total)])
        found += _listed(file, shown, index) if shown else []
        total += len(rows)
        if total > end and time.monotonic() - begun > PATIENCE and number < len(files):
            return {"total": total, "rows": found, "next": end, "complete": False}
    following = end if end < total else None
    return {"total": total, "rows": found, "next": following, "complete": True}


def _files(folder: RunFolder, query: Query) -> list[Path]:
    if query.file:
        return [folder.trajectory_file(query.file)]
    files = in_order(folder.trajectory_files())
    if query.step is None:
        return files
    return [file for file in files if file_kind(file.stem)[1] == query.step]


def _fitting(file: Path, query: Query, index: Index) -> Sequence[int]:
    """The numbers of the rows of a file that fit; where all do, only their number is read."""
    if not query.chooses:
        return range(row_count(file))
    table = index.table(file)
    wanted = {
        "outcome": query.outcome or None,
        "group": query.group or None,
        "success": query.success,
    }
    fits = [
        [value == one for value in table[name].to_pylist()]
        for name, one in wanted.items()
        if one is not None
    ]
    if query.low is not None or query.high is not None:
        low = -math.inf if query.low is None else query.low
        high = math.inf if query.high is None else query.high
        rewards = table["reward"].to_pylist()
        fits.append([reward is not None and low <= reward <= high for reward in rewards])
    looks = {rows_with: query.text, rows_calling: query.tool, rows_with_problem: query.error}
    fits += [look(file, word) for look, word in looks.items() if word]
    return [row for row in range(table.num_rows) if all(column[row] for column in fits)]


def _listed(file: Path, rows: list[int], index: Index) -> list[dict[str, Any]]:
    table, tokens = index.table(file), lengths(file)
    shown = table.take(rows).to_pylist()
    step = file_kind(file.stem)[1]
    return [
        {"file": file.stem, "row": row, "step": step, "tokens": tokens[row], **values}
        for row, values in zip(rows, shown, strict=True)
    ]


def episode(path: Path, name: str, number: int, index: Index) -> dict[str, Any]:
    """An episode as a conversation, with its verdict, its group, and what was trained of it."""
    folder = RunFolder.open(path)
    file = folder.trajectory_file(name)
    row = read_row(file, number)
    facts = ("episode", "outcome", "reward", "parent", "first_turn")
    siblings = [
        {"row": place, **{fact: one[fact] for fact in facts}}
        for place, one in enumerate(index.table(file).to_pylist())
        if one["group"] == row["group"]
    ]
    turns = turns_of(row)
    sampled = [version for version in row["version"] if version >= 0]
    return {
        **{fact: row[fact] for fact in (*LIGHT, "answer") if fact != "detail"},
        "file": name,
        "row": number,
        "step": file_kind(name)[1],
        "graded": row["reward"] is not None,
        "penalty": row["penalty"],
        "parts": json.loads(row["parts"]),
        "turn_rewards": row["turn_rewards"],
        "verdict": row["detail"],
        "problem": row["problem"],
        "contexts": row["contexts"],
        "images": [
            {"url": f"images/{shown['file']}", "turn": int(row["turn"][shown["start"]])}
            for shown in row["images"]
        ],
        "turns": turns,
        "siblings": siblings,
        "why": why(row, turns),
        "trained_down": _trained_down(row),
        "weight": float(np.nansum(row["loss_weight"])) if row["loss_weight"] else None,
        "version": max(sampled, default=None),
    }


def turns_of(row: Row) -> list[dict[str, Any]]:
    """The turns of a trajectory: what the policy did, what came back, and its credit."""
    pairs = zip(json.loads(row["actions"]), json.loads(row["steps"]), strict=True)
    credit = _credit(row)
    return [_turn(number, *pair, row, credit.get(number)) for number, pair in enumerate(pairs)]


def why(row: Row, turns: list[dict[str, Any]]) -> list[str]:
    """Sentences on why an episode ended as it did, from its outcome, its verdict and its turns."""
    said = [OUTCOMES.get(row["outcome"], f"The episode ended as {row['outcome']}.")]
    if row["problem"]:
        said.append(f"What went wrong: {row['problem']}.")
    if row["detail"]:
        said.append(f"The verifier says: {row['detail']}")
    malformed = [turn for turn in turns if turn["error"]]
    if malformed:
        last = malformed[-1]
        said.append(
            f"{len(malformed)} of {len(turns)} turns could not be read, the last one turn "
            f"{last['index'] + 1}: {last['error']}"
        )
    failed = sum(not call["ok"] for turn in turns for call in turn["calls"])
    if failed:
        said.append(f"{failed} tool calls failed by the agent's own mistake.")
    if row["answer"] is not None and row["success"] is False:
        said.append(f"Its answer was: {row['answer']}")
    return said


OUTCOMES = {
    "success": "The verifier calls it a success.",
    "failure": "The agent answered, and the verifier does not call it a success.",
    "truncated_turns": "It ended at the limit of turns, without an answer.",
    "truncated_tokens": "It ended at the limit of tokens, without an answer.",
    "truncated_context": "The context was full before there was an answer.",
    "truncated_tool_calls": "It ended at the limit of tool calls, without an answer.",
    "truncated_time": "It ended at the limit of seconds, without an answer.",
    "agent_parse_error": "A turn could not be read as an action, and that ended the episode.",
    "agent_abort": "The agent gave up, or broke a rule that ends the episode.",
    "agent_resource_limit": "The agent's own action ran into a limit of its sandbox.",
}


def group(path: Path, name: str, wanted: str, index: Index) -> dict[str, Any]:
    """The episodes of a group side by side, each with where it parts from the first one."""
    file = RunFolder.open(path).trajectory_file(name)
    places = [
        place for place, one in enumerate(index.table(file)["group"].to_pylist()) if one == wanted
    ]
    rows = read_rows(file, places)
    facts = ("episode", "parent", "first_turn")
    alike = len({row["prompt"] for row in rows}) == 1
    shown = [
        {
            "row": place,
            **{fact: row[fact] for fact in (*facts, "outcome", "reward", "prompt")},
            "first_difference": None if row is rows[0] else first_difference(rows[0], row),
            "turns": turns_of(row),
        }
        for place, row in zip(places, rows, strict=True)
    ]
    return {
        "group": wanted,
        "task": rows[0]["task"] if rows else "",
        "prompt": rows[0]["prompt" if alike else "task_prompt"] if rows else "",
        "episodes": shown,
        "tree": [{fact: row[fact] for fact in facts} for row in rows],
    }


def first_difference(first: Row, other: Row) -> dict[str, int] | None:
    """The first token in which two trajectories differ, and its turn; None where they are equal."""
    pairs = zip(first["ids"], other["ids"], strict=False)
    same = min(len(first["ids"]), len(other["ids"]))
    place = next((at for at, (one, two) in enumerate(pairs) if one != two), same)
    if place == len(first["ids"]) == len(other["ids"]):
        return None
    longer = other if place < len(other["ids"]) else first
    return {"turn": max(0, int(longer["turn"][place])), "token": place}


def _turn(
    number: int,
    action: Mapping[str, Any],
    step: Mapping[str, Any] | None,
    row: Row,
    credit: Mapping[str, float] | None,
) -> dict[str, Any]:
    results = step["results"] if step is not None else []
    by_turn = row["tool_seconds"] or []
    seconds = by_turn[number] if number < len(by_turn) else []
    calls = [
        {
            "name": call["name"],
            "arguments": call["arguments"],
            "ok": result is None or bool(result[2]),
            "result": None if result is None else result[1],
            "seconds": took,
        }
        for call, result, took in zip(
            action["calls"],
            chain(results, repeat(None)),
            chain(seconds, repeat(None)),
            strict=False,
        )
    ]
    shown = step["observation"] if step is not None else None
    rewards = row["turn_rewards"]
    return {
        "index": number,
        "thinking": action["thought"],
        "text": action["text"],
        "calls": calls,
        "error": action["error"],
        "answer": action["answer"],
        "observation": None if shown is None else shown[0],
        "source": None if shown is None else Source(shown[1]).name.lower(),
        "ended": step is not None and any(step["ended"]),
        "reward": rewards[number] if number < len(rewards) else None,
        "credit": credit,
    }


def _credit(row: Row) -> dict[int, dict[str, float]]:
    """The sum and the mean of the advantages of each turn's sampled tokens, and how many these
    are, where there are advantages."""
    found: dict[int, dict[str, float]] = {}
    for advantage, source, turn in zip(row["advantage"], row["source"], row["turn"], strict=True):
        if source == Source.MODEL:
            credit = found.setdefault(turn, {"advantage_sum": 0.0, "tokens": 0})
            credit["advantage_sum"] += advantage
            credit["tokens"] += 1
    for credit in found.values():
        credit["advantage_mean"] = credit["advantage_sum"] / credit["tokens"]
    return found if row["trained_logprob"] else {}


def _trained_down(row: Row) -> dict[str, Any]:
    """The sampled tokens that an update made less likely: those with an advantage below 0."""
    columns = zip(row["advantage"], row["source"], row["turn"], strict=True)
    down = [
        turn
        for advantage, source, turn in columns
        if source == Source.MODEL and advantage < 0 and row["trained_logprob"]
    ]
    return {"tokens": len(down), "turns": sorted(set(down))}
