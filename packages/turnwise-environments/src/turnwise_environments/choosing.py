"""Tasks of an environment that are played to know it."""

from collections.abc import Sequence
from typing import TypeVar

from turnwise.environments.base import Environment
from turnwise.types import Task

T = TypeVar("T")

COMPARED = 16
"""Tasks that are played again: in another process, from snapshots, and all at once."""


def all_tasks(environment: Environment) -> list[Task]:
    """The tasks of both splits, each once."""
    found = [*environment.tasks("train"), *environment.tasks("heldout")]
    return list({task.id: task for task in found}.values())


def spread(among: Sequence[T], count: int) -> list[T]:
    """At most `count` of them, at even distances."""
    if len(among) <= count:
        return list(among)
    return [among[place * len(among) // count] for place in range(count)]
