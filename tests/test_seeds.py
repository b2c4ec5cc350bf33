"""Promise 11: seeds are names, not counters, and each part of a run uses the names it should.

Expected seeds are computed here, by `golden`, and never by turnwise.
"""

import hashlib
import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.config import BySuccess
from turnwise.learning.sft import batch_of_step
from turnwise.rollout.order import Curriculum, choose_tasks, tasks_of_step
from turnwise.rollout.runner import new_groups
from turnwise.seeds import derive
from turnwise.types import Task

parts = st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["train", "a", "1", ""])), max_size=4)
TASKS = [Task(f"t{number}", "question") for number in range(12)]


def golden(*names: str | int) -> int:
    """The upper 63 bits of the SHA-256 of the names, each after its type's, between unit
    separators."""
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) // 2


def shuffled(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


@given(parts, parts)
def test_different_names_have_different_seeds(
    first: list[int | str], second: list[int | str]
) -> None:
    same = [(type(part), part) for part in first] == [(type(part), part) for part in second]
    assert (derive(*first) == derive(*second)) == same


@given(parts)
def test_a_seed_is_the_hash_of_its_names(names: list[int | str]) -> None:
    assert derive(*names) == golden(*names)


def test_episodes_are_seeded_by_run_occasion_task_and_number() -> None:
    for seed, label in product((0, 1), ("train/3", "train/3/round/1", "evaluation/trained")):
        groups = new_groups(TASKS[:3], 2, seed, label)
        found = [member.seed for group in groups for member in group.trajectories]
        names = product(("t0", "t1", "t2"), (0, 1))
        assert found == [golden(seed, label, task, episode) for task, episode in names]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_order_of_tasks_is_that_of_its_seed_and_pass(seed: int) -> None:
    passes = [shuffled(12, golden(seed, "train", "order", epoch)) for epoch in range(3)]
    played = [task.id for step in range(9) for task in tasks_of_step(TASKS, step, 4, seed)]
    assert played == [f"t{number}" for order in passes for number in order]


@pytest.mark.parametrize(("seed", "label"), [*product((0, 1, 7), ("sft", "auxiliary"))])
def test_the_order_of_demonstrations_is_that_of_its_seed_and_pass(seed: int, label: str) -> None:
    generators = [np.random.default_rng(golden(seed, label, "order", n)) for n in range(3)]
    expected = [int(index) for g in generators for index in g.permutation(10)]
    assert [i for step in range(6) for i in batch_of_step(10, 5, step, seed, label)] == expected


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_curriculums_choice_is_that_of_its_seed_and_step(seed: int) -> None:
    """Nothing is measured yet: after the random share, a shuffle decides, and another one orders
    what was chosen."""
    curriculum = Curriculum(TASKS, BySuccess(kind="by_success", random_share=0.25), 4)
    for step in range(5):
        chance = random.Random(golden(seed, "train", "curriculum", step))
        epoch, position = divmod(step, 12)
        by_turns = shuffled(12, golden(seed, "train", "order", epoch))[position]
        ranked = list(range(12))
        chance.shuffle(ranked)
        expected = list(dict.fromkeys([by_turns, *ranked[:4]]))[:4]
        chance.shuffle(expected)
        played = [task.id for task in curriculum.tasks_of_step(step, seed)]
        assert played == [f"t{number}" for number in expected]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_tasks_of_an_evaluation_are_those_of_its_seed(seed: int) -> None:
    expected = shuffled(12, golden(seed, "evaluation"))[:5]
    assert [task.id for task in choose_tasks(TASKS, 5, seed)] == [f"t{n}" for n in expected]
