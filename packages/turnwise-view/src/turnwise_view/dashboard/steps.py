"""A step: its groups with their rewards, what has no grade and why, and the step's own numbers."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import NO_VERSION
from turnwise_view.dashboard.index import Index, read
from turnwise_view.dashboard.runs import file_kind


def step(path: Path, name: str, index: Index) -> dict[str, Any]:
    """The groups of a file of trajectories, in the order in which they were played."""
    folder = RunFolder.open(path)
    file = folder.trajectory_file(name)
    kind, number = file_kind(name)
    rows = index.table(file).to_pylist()
    measured = _measured(file, number)
    groups: dict[str, dict[str, Any]] = {}
    for place, row in enumerate(rows):
        first = {"group": row["group"], "task": row["task"], "prompt": row["prompt"]}
        group = groups.setdefault(row["group"], {**first, "episodes": []})
        facts = ("episode", "outcome", "reward", "success", "turns", "tool_calls")
        group["episodes"].append(
            {"row": place, **{fact: row[fact] for fact in facts}, **measured[place]}
        )
    for group in groups.values():
        rewards = [one["reward"] for one in group["episodes"] if one["reward"] is not None]
        group["all_equal"] = len(rewards) > 1 and len(set(rewards)) == 1
        group["ungraded"] = len(group["episodes"]) - len(rewards)
    alike = [one.stem for one in folder.trajectory_files() if file_kind(one.stem)[0] == kind]
    alike = sorted(alike) if kind == "step" else alike
    place = alike.index(name)
    lines = folder.lines("metrics.jsonl") if number is not None else []
    return {
        "file": name,
        "kind": kind,
        "step": number,
        "groups": list(groups.values()),
        "ungraded": Counter(row["outcome"] for row in rows if row["reward"] is None),
        "metrics": next((line for line in lines if line["step"] == number), {}),
        "previous": alike[place - 1] if place else None,
        "next": alike[place + 1] if place + 1 < len(alike) else None,
    }


def _measured(file: Path, number: int | None) -> list[dict[str, Any]]:
    """The measures of each trajectory: tokens, the sum of its advantages, and by how many versions
    its oldest token is behind the step's, where it is one."""
    table, found = read(file, ("version", "advantage")), []
    for version, advantage in zip(table["version"], table["advantage"], strict=True):
        own = version.values.to_numpy(zero_copy_only=False)
        sampled = own[own != NO_VERSION]
        behind = None if number is None or not len(sampled) else number - 1 - int(sampled.min())
        credit = advantage.values.to_numpy(zero_copy_only=False).sum(dtype=np.float64)
        found.append({"tokens": len(own), "staleness": behind, "advantage": float(credit)})
    return found
