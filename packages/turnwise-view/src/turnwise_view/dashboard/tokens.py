"""The tokens of an episode: where each came from, its numbers, and why it has no gradient.

Numbers that a run did not record are named as absent, with the reason.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from turnwise.algorithms.parts import BYPASS
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import check_recipe, flattened
from turnwise.errors import ConfigError, DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Source
from turnwise_view.dashboard.index import Index, read_row
from turnwise_view.dashboard.runs import file_kind, recipe_values

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
ZERO = (
    "Its advantage is 0: it was as good as what it is compared with. A term of KL or entropy may "
    "move it all the same."
)
SKIPPED = "No update computed it: the update was skipped, or the token is in none of its examples."
CLIPPED = (
    "Its ratio had left the clip range {low:g} to {high:g} on the side that its advantage pushes "
    "to, so the objective took its gradient away."
)
NO_UPDATE = "The trajectory is in no update of RL."
EARLIER = "An earlier version of turnwise wrote the run, and did not record it."
Row = Mapping[str, Any]
Floats = NDArray[np.float64]


class Pieces:
    """The texts of a tokenizer's tokens, each decoded once."""

    def __init__(self) -> None:
        self._tokenizers: dict[Path, tuple[int, Tokenizer, dict[int, str]]] = {}

    def of(self, path: Path, ids: Sequence[int]) -> list[str]:
        """The texts of some tokens of a run. Raises DataError where its tokenizer cannot be
        read."""
        if not ids:
            return []  # a log of another framework: it has texts alone, and no tokenizer
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
    path: Path, name: str, number: int, place: tuple[int, int | None], index: Index, pieces: Pieces
) -> dict[str, Any]:
    """The tokens of an episode from and to a place (None is its end), by columns."""
    file = RunFolder.open(path).trajectory_file(name)
    row = read_row(file, number)
    count, (begin, end) = len(row["ids"]), place
    first = min(max(0, begin), count)
    part = slice(first, count if end is None else min(max(first, end), count))
    sampled = np.asarray(row["source"], np.int64) == Source.MODEL
    columns: dict[str, Any] = {
        "id": row["ids"][part],
        "piece": pieces.of(path, row["ids"][part]),
        "source": row["source"][part],
        "turn": row["turn"][part],
        "version": row["version"][part],
        "logprob": _numbers(row["logprob"], part),
        "context": _contexts(row, count)[part],
    }
    absent: dict[str, str] = {}
    reasons = _reasons(name, row, index, file, recipe_values(path))
    columns["trained"] = [one is None for one in reasons[part]]
    known = list(dict.fromkeys(one for one in reasons if one is not None))
    columns["reason"] = [None if one is None else known.index(one) for one in reasons[part]]
    if row["trained_logprob"]:
        after, before = (np.asarray(row[key]) for key in ("trained_logprob", "logprob"))
        columns["trained_logprob"] = _numbers(after, part)
        columns["gap"] = _numbers(after - before, part)
        with np.errstate(over="ignore"):  # what is infinite is shown as nothing
            columns["ratio"] = _numbers(np.exp(after - before), part)
        columns["advantage"] = _numbers(np.where(sampled, row["advantage"], np.nan), part)
    else:
        absent |= dict.fromkeys(("trained_logprob", "gap", "ratio", "advantage"), NO_UPDATE)
    for key in ("entropy", "loss_weight"):
        if row[key]:
            columns[key] = _numbers(row[key], part)
        else:
            absent[key] = EARLIER if row["trained_logprob"] else NO_UPDATE
    if row["value"]:
        columns["value"] = _numbers(row["value"], part)
    else:
        absent["value"] = "The algorithm has no critic."
    return {
        "count": count,
        "from": part.start,
        "to": part.stop,
        "columns": columns,
        "sources": [source.name.lower() for source in Source],
        "reasons": known,
        "breaks": [start for start, _ in row["contexts"]],
        "absent": absent,
    }


def _reasons(
    name: str, row: Row, index: Index, file: Path, recipe: Mapping[str, Any]
) -> list[str | None]:
    """Why each token has no gradient; None where it has one."""
    kind, _ = file_kind(name)
    if kind == "evaluation":
        return [OF_EVALUATION] * len(row["ids"])
    sources = row["source"]
    if kind == "other":  # demonstrations and preferences: every sampled token
        return [NOT_SAMPLED.get(Source(source)) for source in sources]
    trained = {Source.MODEL}
    if not flattened(recipe).get("learning.mask_observations", True):
        trained |= {Source.TOOL, Source.ENVIRONMENT}
    whole = _of_trajectory(row, index, file)
    each = [whole] * len(sources) if whole else _of_tokens(row, clip_range(recipe))
    return [
        reason if source in trained else NOT_SAMPLED[Source(source)]
        for source, reason in zip(sources, each, strict=True)
    ]


def clip_range(recipe: Mapping[str, Any]) -> tuple[float, float] | None:
    """The range of ratios outside of which a recipe's algorithm clips a token; None where its
    ratios are not those of each token to the policy that sampled it."""
    try:
        chosen = check_recipe(recipe, "the run's recipe").algorithm
        algorithm = make_algorithm(chosen.name, chosen.overrides)
    except ConfigError:
        return None  # of another version, or with a part in a file that is gone
    parts = algorithm.objective, algorithm.ratio_level, algorithm.correction
    if parts != ("clip", "token", BYPASS):
        return None
    numbers = algorithm.numbers_of("objective")
    return 1 - numbers["clip_low"], 1 + numbers["clip_high"]


def _of_tokens(row: Row, clip: tuple[float, float] | None) -> list[str | None]:
    """Why tokens of a trajectory that is in an update have no gradient, were they all trained."""
    advantage, after = np.asarray(row["advantage"]), np.asarray(row["trained_logprob"])
    found = np.full(len(advantage), None, object)
    if clip is not None:
        low, high = clip
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = np.exp(after - np.asarray(row["logprob"]))
            beyond = np.where(advantage > 0, ratio > high, ratio < low)
        found[beyond] = CLIPPED.format(low=low, high=high)
    found[advantage == 0] = ZERO
    found[np.isnan(after) & (advantage != 0)] = SKIPPED
    return found.tolist()


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
    starts = [start for start, _ in row["contexts"]] or [0]
    return list(np.repeat(range(len(starts)), np.diff([*starts, count])).tolist())


def _numbers(values: Any, place: slice) -> list[float | None]:
    """The values of some tokens as JSON has numbers: None where nothing was measured."""
    part = np.asarray(values, np.float64)[place].tolist()
    return [value if math.isfinite(value) else None for value in part]
