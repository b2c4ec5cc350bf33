"""The tokens of an episode: where each came from, its numbers, and why it has no gradient.

Not here: drawing them. Numbers that a run did not record are named as absent, with the reason.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from turnwise.dashboard.index import Index, read_row
from turnwise.dashboard.runs import file_kind, recipe_values
from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Source

NOT_SAMPLED = {
    Source.TEMPLATE: "The template wrote it: the policy did not sample it.",
    Source.USER: "It is of the task: the policy did not sample it.",
    Source.TOOL: "A tool wrote it: the policy did not sample it.",
    Source.ENVIRONMENT: "The environment wrote it: the policy did not sample it.",
    Source.INHERITED: (
        "It was sampled in another trajectory or an earlier context, and is trained there alone."
    ),
}
OF_EVALUATION = "Nothing of an evaluation is trained."
UNGRADED = "The episode has no grade ({outcome}), so it is in no loss."
ALL_EQUAL = (
    "All rewards of its group are equal, so no episode of it is better than another: its advantage "
    "is 0."
)
LEFT_OUT = "A filter of the algorithm left the trajectory out of the update."
ZERO = "Its advantage is 0: it was as good as what it is compared with."
ABSENT = {
    "entropy": "The entropy of each token is not recorded: metrics.jsonl has its mean.",
    "weight": "A token's weight in the loss follows from the algorithm's aggregation and is not "
    "recorded.",
}
Row = Mapping[str, Any]
Floats = NDArray[np.float64]


class Pieces:
    """The texts of a tokenizer's tokens, each decoded once."""

    def __init__(self) -> None:
        self._tokenizers: dict[Path, tuple[int, Tokenizer, dict[int, str]]] = {}

    def of(self, path: Path, ids: Sequence[int]) -> list[str]:
        """The texts of some tokens of a run. Raises DataError where its tokenizer cannot be
        read."""
        file = path / "tokenizer" / "tokenizer.json"
        try:
            changed = file.stat().st_mtime_ns
            if path not in self._tokenizers or self._tokenizers[path][0] != changed:
                self._tokenizers[path] = changed, Tokenizer.from_file(str(file)), {}
        except Exception as error:  # tokenizers raises nothing more precise
            line = str(error).partition("\n")[0]
            raise DataError(f"{file} cannot be read, so no token has a text: {line}") from error
        _, tokenizer, known = self._tokenizers[path]
        for token in set(ids) - known.keys():
            known[token] = tokenizer.decode([token], skip_special_tokens=False)
        return [known[token] for token in ids]


def tokens(
    path: Path, name: str, number: int, begin: int, end: int | None, index: Index, pieces: Pieces
) -> dict[str, Any]:
    """The tokens of an episode from `begin` to `end`, by columns."""
    file = RunFolder.open(path).trajectory_file(name)
    row = read_row(file, number)
    count = len(row["ids"])
    first = min(max(0, begin), count)
    place = slice(first, count if end is None else min(max(first, end), count))
    sampled = np.asarray(row["source"], np.int64) == Source.MODEL
    columns: dict[str, Any] = {
        "id": row["ids"][place],
        "piece": pieces.of(path, row["ids"][place]),
        "source": row["source"][place],
        "turn": row["turn"][place],
        "version": row["version"][place],
        "logprob": _numbers(row["logprob"], place),
        "context": _contexts(row, count)[place],
    }
    absent = dict(ABSENT)
    reasons = _reasons(path, name, row, index, file)
    columns["trained"] = [one is None for one in reasons[place]]
    known = list(dict.fromkeys(one for one in reasons if one is not None))
    columns["reason"] = [None if one is None else known.index(one) for one in reasons[place]]
    if row["trained_logprob"]:
        after, before = (np.asarray(row[key]) for key in ("trained_logprob", "logprob"))
        columns["trained_logprob"] = _numbers(after, place)
        columns["gap"] = _numbers(after - before, place)
        with np.errstate(over="ignore"):
            columns["ratio"] = _numbers(np.exp(after - before), place)
        columns["advantage"] = _numbers(np.where(sampled, row["advantage"], np.nan), place)
    else:
        reason = "The trajectory is in no update of RL."
        absent |= dict.fromkeys(("trained_logprob", "gap", "ratio", "advantage"), reason)
    if row["value"]:
        columns["value"] = _numbers(row["value"], place)
    else:
        absent["value"] = "The algorithm has no critic."
    return {
        "count": count,
        "from": place.start,
        "to": place.stop,
        "columns": columns,
        "sources": [source.name.lower() for source in Source],
        "reasons": known,
        "breaks": [start for start, _ in row["contexts"]],
        "absent": absent,
    }


def _reasons(path: Path, name: str, row: Row, index: Index, file: Path) -> list[str | None]:
    """Why each token has no gradient; None where it has one."""
    kind, _ = file_kind(name)
    if kind == "evaluation":
        return [OF_EVALUATION] * len(row["ids"])
    sources = row["source"]
    if kind == "other":  # demonstrations and preferences: every sampled token
        return [NOT_SAMPLED.get(Source(source)) for source in sources]
    whole = _of_trajectory(row, index, file)
    observed = not recipe_values(path).get("learning", {}).get("mask_observations", True)
    found: list[str | None] = []
    for source, advantage in zip(sources, row["advantage"], strict=True):
        trained = source == Source.MODEL or (
            observed and source in (Source.TOOL, Source.ENVIRONMENT)
        )
        if not trained:
            found.append(NOT_SAMPLED[Source(source)])
        else:
            found.append(whole or (ZERO if advantage == 0 else None))
    return found


def _of_trajectory(row: Row, index: Index, file: Path) -> str | None:
    """Why no token of a trajectory has a gradient, whatever its source; None where some has."""
    if row["reward"] is None:
        return UNGRADED.format(outcome=row["outcome"])
    if any(row["advantage"]) and row["trained_logprob"]:
        return None
    table = index.table(file)
    groups, rewards = table["group"].to_pylist(), table["reward"].to_pylist()
    of_group = {
        reward
        for group, reward in zip(groups, rewards, strict=True)
        if group == row["group"] and reward is not None
    }
    if len(of_group) == 1:
        return ALL_EQUAL
    return None if row["trained_logprob"] else LEFT_OUT


def _contexts(row: Row, count: int) -> list[int]:
    """The number of the context that each token is in."""
    starts = [start for start, _ in row["contexts"]] or [0]
    ends = [*starts[1:], count]
    return [
        number
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        for _ in range(end - start)
    ]


def _numbers(values: Any, place: slice) -> list[float | None]:
    """The values of some tokens as JSON has numbers: None where nothing was measured."""
    part = np.asarray(values, np.float64)[place].tolist()
    return [value if math.isfinite(value) else None for value in part]
