"""Measures of repetition: of agents within an episode, and of each other within a group.

Counted on what the policy sampled and did, never on what tools returned.
"""

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from statistics import fmean

import numpy as np

from turnwise.tokens import Tokens
from turnwise.types import Group, Trajectory

NGRAM = 4
"""Tokens that make up one n-gram."""


def repetition_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Three shares, each in [0, 1]; ungraded episodes are in none of them.

    `repetition/ngrams` and `repetition/actions` are means over the episodes that have an n-gram or
    an action at all, `repetition/episodes` over the groups that have two members to compare. What
    nothing was measured for is absent.
    """
    graded = [member for group in groups for member in group.graded]
    shares = {
        "repetition/ngrams": [_repeated(_ngrams(member.tokens)) for member in graded],
        "repetition/actions": [_repeated(_actions(member)) for member in graded],
        "repetition/episodes": [_alike(group) for group in groups],
    }
    known = {name: [v for v in values if v is not None] for name, values in shares.items()}
    return {name: fmean(values) for name, values in known.items() if values}


def _repeated(items: Sequence[Hashable]) -> float | None:
    """The share that occurred before in the same sequence; None for an empty one."""
    return 1 - len(set(items)) / len(items) if items else None


def _ngrams(tokens: Tokens, length: int = NGRAM) -> list[Hashable]:
    """N-grams of neighbouring sampled tokens of one turn, none over what was not sampled."""
    if len(tokens) < length:  # numpy has no window longer than its array
        return []
    ids, turns, sampled = (
        np.lib.stride_tricks.sliding_window_view(array, length)
        for array in (tokens.ids, tokens.turn, tokens.mask)
    )
    counted = np.all(sampled, axis=1) & np.all(turns == turns[:, :1], axis=1)
    return [tuple(row) for row in ids[counted].tolist()]


def _actions(member: Trajectory) -> list[Hashable]:
    """Each tool call by name and arguments, each answer, each malformed turn by its text."""
    actions: list[Hashable] = []
    for turn in member.turns:
        action = turn.action
        if action.error is not None:
            actions.append(("malformed", action.text))
        for call in action.calls:
            arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
            actions.append(("call", call.name, arguments))
        if action.answer is not None:
            actions.append(("answer", action.answer))
    return actions


def _alike(group: Group) -> float | None:
    """The share of episodes that do exactly what another one of the group does, in order."""
    sequences = [tuple(_actions(member)) for member in group.graded]
    if len(sequences) < 2:
        return None
    counts = Counter(sequences)
    return fmean([counts[sequence] > 1 for sequence in sequences])
