"""Groups with other members: records do not change, so a test that wants another one makes it."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tests.learning.conftest import VOCABULARY
from turnwise.tokens import KeptTokens, Tokens
from turnwise.types import Group, Trajectory

ARRAYS = {one.name for one in fields(Tokens)}


def put(array: np.ndarray, where: Any, value: Any) -> np.ndarray:
    """A copy of the array with another value at some places."""
    copied = array.copy()
    copied[where] = value
    return copied


def changed(member: Trajectory, **changes: Any) -> Trajectory:
    """The trajectory with other fields: its own, or arrays of its tokens."""
    arrays = {name: value for name, value in changes.items() if name in ARRAYS}
    own = {name: value for name, value in changes.items() if name not in ARRAYS}
    return replace(member, tokens=replace(own.pop("tokens", member.tokens), **arrays), **own)


def each(groups: Sequence[Group], change: Callable[[Trajectory], Trajectory]) -> list[Group]:
    """The groups with every member changed."""
    return [replace(group, trajectories=tuple(map(change, group.trajectories))) for group in groups]


def with_one(groups: Sequence[Group], group: int, member: int, **changes: Any) -> list[Group]:
    """The groups with one member changed, by its places."""
    chosen = groups[group].trajectories[member].id
    return each(groups, lambda own: changed(own, **changes) if own.id == chosen else own)


def drawn_among_some(member: Trajectory) -> Trajectory:
    """The trajectory with some tokens beside most of those that were sampled."""
    tokens, random = member.tokens, np.random.default_rng(member.episode)
    drawn = tokens.mask & (random.random(len(tokens)) < 0.9)
    rows = [
        np.union1d(random.choice(VOCABULARY, 9), [token]) if among else []
        for token, among in zip(tokens.ids, drawn, strict=True)
    ]
    return changed(member, kept=KeptTokens.of(rows))
