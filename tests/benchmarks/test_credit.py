"""The benchmark of credit: its exact gradient, and that it finds a fault in a method."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.credit import LIMIT, measure, methods
from benchmarks.credit_tasks import TASKS, exact_gradient, play, softmax, solve
from tests.marked import WING

PLANTED = """
import numpy as np
from turnwise.algorithms.estimators import of_turns
from turnwise.algorithms.parts import part
from turnwise.algorithms.turns import turn_rloo

@part("estimator", of=of_turns)
def late(group):
    "Credit one turn too late."
    return [np.append(0.0, row[:-1]) for row in turn_rloo(group)]

@part("estimator", of=of_turns)
def small(group):
    "Half of it."
    return [row / 2 for row in turn_rloo(group)]
"""


@pytest.mark.parametrize("name", TASKS)
def test_the_exact_gradient_is_the_derivative_of_the_exact_return(name: str) -> None:
    task, step = TASKS[name](3), 1e-5
    found, expected = exact_gradient(task, softmax(task.logits)), np.zeros(task.logits.shape)
    for place in np.ndindex(*task.logits.shape):
        moved = np.zeros(task.logits.shape)
        moved[place] = step
        high, low = (solve(task, softmax(task.logits + k * moved)).start for k in (1, -1))
        expected[place] = (high - low) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("name", TASKS)
def test_episodes_return_what_is_expected(name: str) -> None:
    task = TASKS[name](3)
    stream, prompt = np.random.default_rng(0), np.arange(4000) % 2
    totals = play(task, softmax(task.logits), prompt, stream).total
    error = totals.std() / len(totals) ** 0.5
    assert abs(totals.mean() - solve(task, softmax(task.logits)).start) < 3.5 * error


@WING
@pytest.mark.long
@pytest.mark.parametrize("name", ["first", "paid"])
def test_unbiased_methods_pass_and_others_are_found(name: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    own = [f"{tmp_path}/planted.py:{fault}" for fault in ("late", "small")]
    every = methods(own)
    chosen = {key: every[key] for key in ("reinforce", "rloo", "turn_rloo", "grpo", *own)}
    rows = {row["method"]: row for row in measure(name, 2, chosen, 300, learning=False)}
    for right in ("reinforce", "rloo", "turn_rloo"):
        assert rows[right]["z"] < LIMIT
        assert abs(rows[right]["length"] - 1) < LIMIT * rows[right]["length_error"]
    for fault in own:
        assert rows[fault]["length"] + LIMIT * rows[fault]["length_error"] < 0.9
    assert rows["grpo"]["z"] > LIMIT


@pytest.mark.long
def test_what_is_learned_is_a_share_of_what_can_be_gained() -> None:
    (row,) = measure("last", 2, {"rloo": methods()["rloo"]}, 4)
    assert 0.3 < row["learned"] <= 1
