"""The example of texts written backwards: what it asks, and what an answer is worth."""

import asyncio
from pathlib import Path

import pytest

from turnwise import Action, Environment, Task, Trajectory, make_environment
from turnwise.types import Turn, Verdict

EXAMPLE = Path(__file__).parents[2] / "examples/reverse_text.py"
TASK = Task("one", "Ada.", {"reversed": ".adA"})


@pytest.fixture(scope="module")
def environment() -> Environment:
    return make_environment(f"{EXAMPLE}:ReverseText")


def judged(environment: Environment, answer: str) -> Verdict:
    turn = Turn(Action(answer, answer=answer))
    return asyncio.run(environment.verify(Trajectory(TASK, "one", 0, 0, turns=(turn,))))


def test_no_text_is_in_both_splits_and_all_are_as_long_as_asked(environment: Environment) -> None:
    train, heldout = ({task.prompt for task in environment.tasks(s)} for s in ("train", "heldout"))
    assert not train & heldout
    assert len(train) > 1000
    assert len(heldout) > 200
    assert all(24 <= len(text) <= 64 for text in train | heldout)


def test_the_oracle_writes_it_backwards(environment: Environment) -> None:
    (action,) = environment.oracle(TASK)
    assert action.answer == "<reversed_text>.adA</reversed_text>"
    assert judged(environment, action.answer) == Verdict(1.0, True, {"tagged": 1.0})


@pytest.mark.parametrize(
    ("answer", "reward", "tagged"),
    [
        ("Here: <reversed_text> .adA </reversed_text> as asked", 1.0, 1.0),
        ("<reversed_text>.daA</reversed_text>", 0.75, 1.0),
        ("<reversed_text></reversed_text>", 0.0, 1.0),
        ("<reversed_text>.adA", 0.0, 0.0),
        (".adA", 0.0, 0.0),
    ],
)
def test_an_answer_is_worth_as_much_as_it_is_alike(
    environment: Environment, answer: str, reward: float, tagged: float
) -> None:
    verdict = judged(environment, answer)
    assert (verdict.reward, verdict.parts["tagged"]) == (reward, tagged)
    assert verdict.success == (reward == 1)
