"""Which tasks a curriculum plays, and that its memory is all in its state."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graded import graded
from turnwise.config import BySuccess
from turnwise.errors import ConfigError
from turnwise.rollout.order import Curriculum, random_tasks, tasks_of_step
from turnwise.types import Group, Task

TASKS = [Task(f"t{number}", "question") for number in range(12)]
CONFIG = BySuccess(kind="by_success", window=4)


def group(task: Task, *successes: bool | None) -> Group:
    """Rewards say nothing of success; None is ungraded."""
    members = [graded(success, task, n, reward=0.5) for n, success in enumerate(successes)]
    return Group(f"train/0/{task.id}", members)


def made(count: int = 4, config: BySuccess = CONFIG) -> Curriculum:
    return Curriculum(TASKS, config, count)


def measured(rates: dict[int, float], count: int = 4, **options: float) -> Curriculum:
    """All other tasks have rate 0; rates are quarters."""
    curriculum = made(count, config=CONFIG.model_copy(update=options))
    for number, task in enumerate(TASKS):
        wins = round(4 * rates.get(number, 0.0))
        curriculum.measure([group(task, *[True] * wins, *[False] * (4 - wins))])
    return curriculum


def drawn(curriculum: Curriculum, steps: int) -> Counter[str]:
    return Counter(task.id for step in range(steps) for task in curriculum.tasks_of_step(step, 0))


def test_tasks_in_the_band_are_drawn_and_the_others_at_random() -> None:
    """Three of four tasks are chosen, from four in the band; the fourth is anyone's turn."""
    curriculum = measured({1: 0.25, 2: 0.5, 3: 0.75, 4: 0.75, 5: 1.0})
    counts = drawn(curriculum, 120)
    assert set(counts) == {task.id for task in TASKS}
    banded = sum(counts[f"t{number}"] for number in (1, 2, 3, 4))
    assert banded >= 3 * 120
    for number in (1, 2, 3, 4):
        assert 70 <= counts[f"t{number}"] <= 120
    for number in (0, 5, 6, 7, 8, 9, 10, 11):
        assert counts[f"t{number}"] == 10  # 120 random draws in passes over 12


def test_those_never_played_come_first_and_then_the_nearest_to_the_band() -> None:
    curriculum = measured({1: 0.75, 2: 0.5, 3: 0.25}, 6, target=0.45, margin=0.15)
    curriculum.load_state({k: v for k, v in curriculum.state().items() if k not in ("t8", "t9")})
    ranked = ["t8", "t9", "t2", "t3", "t1"]
    for step in range(20):
        random_ones = {task.id for task in tasks_of_step(TASKS, step, 2, 0)}
        chosen = {task.id for task in curriculum.tasks_of_step(step, 0)}
        best = [name for name in ranked if name not in random_ones][:4]
        assert random_ones | set(best) <= chosen


@given(count=st.integers(2, 11), step=st.integers(0, 200), seed=st.integers(0, 9))
def test_a_step_has_as_many_different_tasks_as_asked_for(count: int, step: int, seed: int) -> None:
    curriculum = made(count)
    curriculum.measure([group(task, True) for task in TASKS[:5]])
    chosen = curriculum.tasks_of_step(step, seed)
    assert len({task.id for task in chosen}) == len(chosen) == count
    assert chosen == curriculum.tasks_of_step(step, seed)


def test_the_rate_is_of_the_last_graded_episodes() -> None:
    curriculum = made()
    assert curriculum.rate("t0") is None
    curriculum.measure([group(TASKS[0], None, None)])
    assert curriculum.rate("t0") is None
    assert curriculum.metrics()["curriculum/measured"] == 0
    curriculum.measure([group(TASKS[0], True, None, True, True)])
    assert curriculum.rate("t0") == 1.0
    curriculum.measure([group(TASKS[0], False, False)])
    assert curriculum.rate("t0") == 0.5  # of the last four
    curriculum.measure([group(TASKS[1], True)])
    assert curriculum.metrics() == {"curriculum/measured": 2 / 12, "curriculum/in_band": 0.5}


def test_a_task_that_cannot_be_graded_is_left_to_chance() -> None:
    curriculum = made()
    curriculum.measure([group(task, False) for task in TASKS[1:]])
    curriculum.measure([group(TASKS[0], None, None)])
    assert drawn(curriculum, 24)["t0"] == 2  # in passes over 12


def test_the_state_is_all_there_is_to_remember() -> None:
    first, second = made(), made()
    for step in range(30):
        tasks = first.tasks_of_step(step, 0)
        assert [t.id for t in second.tasks_of_step(step, 0)] == [t.id for t in tasks]
        first.measure([group(task, *[hash_free(task.id, step)] * 2, False) for task in tasks])
        second = made()
        second.load_state(json.loads(json.dumps(first.state())))
    assert second.metrics() == first.metrics()


def hash_free(name: str, step: int) -> bool:
    """The same in every process."""
    return (int(name[1:]) + step) % 3 == 0


def test_nothing_to_choose_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes all of them"):
        made(count=1)
    with pytest.raises(ConfigError, match="12 of 12 tasks"):
        made(count=12)
    assert random_tasks(CONFIG, 4) == 1
    assert random_tasks(CONFIG, 5) == 2
