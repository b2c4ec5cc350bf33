"""Copying: how much of what a policy writes stood in an observation before."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NGRAM = 4
"""Words that make up one n-gram."""
WORDS = 512
"""Words of a text that are looked at."""
COLUMNS = ("group", "actions", "steps")
"""Columns of trajectories that are read."""
COPIED = "repetition/copied"


def copied_share(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """The share of the n-grams of words in all turns of some trajectories that an observation of an
    earlier turn has; None where no turn after an observation has so many words."""
    counts = [_counts(json.loads(row["actions"]), json.loads(row["steps"])) for row in rows]
    written = sum(one for _, one in counts)
    return sum(one for one, _ in counts) / written if written else None


def _counts(
    actions: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any] | None]
) -> tuple[int, int]:
    """N-grams that are copied, and all, of the turns that follow an observation."""
    shown, copied, written = set[tuple[str, ...]](), 0, 0
    for action, step in zip(actions, steps, strict=False):
        grams = ngrams(action["text"]) if shown else []
        copied += sum(gram in shown for gram in grams)
        written += len(grams)
        if step is not None and step["observation"] is not None:
            shown.update(ngrams(step["observation"][0]))
    return copied, written


def ngrams(text: str) -> list[tuple[str, ...]]:
    """The n-grams of the words at the beginning of a text."""
    words = text.split(maxsplit=WORDS)[:WORDS]
    return [tuple(words[at : at + NGRAM]) for at in range(len(words) - NGRAM + 1)]
