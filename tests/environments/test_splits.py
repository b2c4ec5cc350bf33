"""Splits: held-out tasks that are the training tasks are refused, whatever they are called."""

from collections.abc import Sequence

import pytest

from tests.fakes import Arms, Capitals
from turnwise.environments.base import Environment, Split
from turnwise.environments.derived import guarded
from turnwise.environments.splits import check_splits, shared_tasks
from turnwise.errors import DataError
from turnwise.types import Task


class Same(Environment):
    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}/{n}", f"{n}?", {"answer": n}) for n in range(3)]


def checked(environment: Environment) -> None:
    check_splits(environment, environment.tasks("train"), environment.tasks("heldout"))


def test_held_out_tasks_that_were_trained_on_are_refused_by_what_they_are() -> None:
    with pytest.raises(DataError, match="same: its held-out tasks are training tasks"):
        checked(Same())
    with pytest.raises(DataError):
        check_splits(Same(), Same().tasks("train"), Same().tasks("heldout")[:1])
    other = Task("train/0", "0?", {"answer": 1})
    check_splits(Same(), Same().tasks("train"), [*Same().tasks("heldout"), other])
    check_splits(Same(), Same().tasks("train"), [])
    checked(Capitals())


def test_what_tasks_hold_need_not_be_json() -> None:
    walls = [Task(f"{n}", "Go.", {"way": {n, "b"}}, {(0, n): "wall", "size": n}) for n in (1, 2)]
    assert (shared_tasks(walls, walls), shared_tasks(walls[:1], walls[1:])) == (2, 0)


def test_shared_tasks_are_counted() -> None:
    train, heldout = Same().tasks("train"), Same().tasks("heldout")
    assert shared_tasks(train[:2], heldout) == 2
    assert shared_tasks(train, [Task("train/0", "0?", {"answer": 1})]) == 0, "by what they are"


def test_where_luck_alone_makes_the_difference_they_may_be_the_same() -> None:
    checked(Arms())


def test_what_is_odd_is_told_through_a_guard_too() -> None:
    inner = Arms()
    inner.warnings, inner.weaknesses = ["odd"], ["weak"]
    outer = guarded(inner, {"pull": 1})
    assert (outer.warnings, outer.weaknesses, outer.same_splits) == (["odd"], ["weak"], True)
