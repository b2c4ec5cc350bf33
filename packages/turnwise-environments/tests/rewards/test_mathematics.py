"""Answers of mathematics by somebody who would like a wrong one to pass; equal forms; limits."""

import random
import sys
from typing import Any

import pytest

from mathematical_answers import ACCEPTED, EXPENSIVE, RIGHT, WRONG, pairs
from tests.rewards.episodes import answer, episode
from turnwise.errors import InfrastructureError, MissingExtraError, ToolError
from turnwise.rewards.measuring import PartError
from turnwise_environments.rewards import symbolic
from turnwise_environments.rewards.expressions import (
    MAX_CHARACTERS,
    Expression,
    read_expression,
    symbols_of,
)
from turnwise_environments.rewards.mathematics import is_echo, is_right, mathematics

pytest.importorskip("math_verify")


@pytest.mark.parametrize(("given", "accepted"), WRONG)
def test_wrong_answers_are_wrong(given: str, accepted: str) -> None:
    assert not is_right(given, accepted)


@pytest.mark.parametrize(("given", "accepted"), RIGHT)
def test_equal_forms_are_right(given: str, accepted: str) -> None:
    assert is_right(given, accepted)


@pytest.mark.long
def test_polynomials_expanded_and_factored() -> None:
    """(x + a)(bx + c), and the same with one coefficient changed."""
    stream = random.Random(0)
    for _ in range(25):
        a, b, c = (stream.choice([-5, -3, -2, 2, 3, 7]) for _ in range(3))
        factored = f"(x{a:+})({b}x{c:+})"
        coefficients = [b, c + a * b, a * c]
        assert is_right("{}x^2{:+}x{:+}".format(*coefficients), factored)
        coefficients[stream.randrange(3)] += stream.choice([-1, 1])
        assert not is_right("{}x^2{:+}x{:+}".format(*coefficients), factored)


def test_units_are_the_tasks_or_the_accepted_answers() -> None:
    assert is_right("10%", "10", ["%"])
    assert is_right("10%", "10%")
    assert is_right("5", "5 km")
    assert is_right("5000 m", "5 km")


def test_what_stands_in_the_question_is_no_answer() -> None:
    question = r"Factor $x^2 - 1$ over the integers."
    assert not is_right("x^2-1", "(x-1)(x+1)", question=question)
    assert is_right("(x+1)(x-1)", "(x-1)(x+1)", question=question)
    assert not is_echo("x^2 - 1", "x^2-1", question)  # it is the accepted one
    assert not is_echo("x", "y", question)
    assert is_right("friday", r"\text{Friday}", question="Is it monday or friday?")
    for echo in ("2^{10}", "The answer is 2^{10}", "2^{10} = 2^{10}"):
        assert not is_right(echo, "1024", question="What is 2^{10}?")
    assert is_right("2^{10} = 1024", "1024", question="What is 2^{10}?")
    secret = {"answer": "(x-1)(x+1)"}
    assert mathematics(episode(answer("x^2-1"), secret=secret, prompt=question)) == 0.0
    assert mathematics(episode(answer("x^2-1"), secret=secret)) == 1.0


def test_long_texts_end_in_a_verdict() -> None:
    for text in ("is " * 5000 + "5", "=" * 3000, "\\boxed{" * 2800 + "5", f"the{' ' * 19000}5"):
        assert not is_right(text, "5")
    assert is_right("It follows. " * 5000 + r"\boxed{5}", "5")


def test_the_part_takes_any_accepted_answer() -> None:
    secret = {"answers": ["3", "x+1"]}
    assert mathematics(episode(answer("1+x"), secret=secret)) == 1.0
    assert mathematics(episode(answer("3.0"), secret=secret)) == 1.0
    assert mathematics(episode(secret=secret)) == 0.0
    with pytest.raises(PartError, match="the task's secret"):
        mathematics(episode(answer("3")))


def test_what_is_not_in_the_language_is_not_read() -> None:
    for text in ("1 2", "x2", "5!!", "50%", "2:1", r"\foo", "(" * 13 + "x" + ")" * 13, "9" * 21):
        assert read_expression(text) is None, text
    for text in (
        "x" * MAX_CHARACTERS + "x",
        "x^{10000}",
        "9^{9^9}",
        "x^{x^{x^x}}",
        "(x",
        "x)",
        r"\frac{1)",
        "1,,2",
    ):
        assert read_expression(text) is None, text
    made = read_expression("{(x,2]}".strip("{}"))
    assert made == Expression("(]", parts=(Expression("scalar", "x"), Expression("scalar", "2")))
    assert symbols_of(made) == {"x"}


@pytest.mark.slow
@pytest.mark.parametrize("given", EXPENSIVE, ids=range(len(EXPENSIVE)))
def test_what_asks_for_too_much_is_wrong(given: str) -> None:
    assert not is_right(given, ACCEPTED)
    assert is_right(r"\sqrt{2}+x", ACCEPTED)  # there are workers again


def x_and(name: str) -> tuple[Expression, Expression]:
    """Expressions that have been compared with each other never before."""
    return Expression("scalar", f"x + {name}"), Expression("scalar", f"{name} + x")


class Scripted:
    """Workers whose calls give these results, one after the other; an error is raised."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)

    def call(self, function: Any, *arguments: Any, seconds: float) -> Any:
        del function, arguments, seconds
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


DIED = ToolError("it ended its process")
SCRIPTS: dict[str, tuple[list[Any], bool | None]] = {
    "right": ([True], True),
    "wrong": ([False], False),
    "died of something else": ([DIED, True, True], True),
    "dies again": ([DIED, True, DIED], False),
    "dies, then takes too long": ([DIED, True, None], False),
    "takes too long": ([None, True], False),
    "the accepted one dies too": ([DIED, DIED], None),
    "the accepted one takes too long": ([None, None], None),
    "the accepted one is not itself": ([None, False], None),
}
"""What the workers give, and what is known from it; None is nothing."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_answers_own_fault_comes_again_and_the_accepted_ones_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    results, found = SCRIPTS[name]
    workers = Scripted(*results)
    monkeypatch.setattr(symbolic, "_workers", lambda: workers)
    compared = x_and(name)
    if found is None:
        with pytest.raises(InfrastructureError, match="the accepted answer"):
            symbolic._compared(*compared)
    else:
        assert symbolic._compared(*compared) is found
    assert workers.results == []


def test_a_worker_starts_where_memory_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS."""

    def refused(*_: Any) -> None:
        raise ValueError("current limit exceeds maximum limit")

    signals: list[int] = []
    monkeypatch.setattr(symbolic.resource, "setrlimit", refused)
    monkeypatch.setattr(symbolic.signal, "signal", lambda number, _: signals.append(number))
    monkeypatch.setattr(symbolic.logging, "disable", lambda: None)
    symbolic.prepare()
    assert signals == [symbolic.signal.SIGPROF]


def test_an_accepted_answer_that_cannot_be_read_is_equal_to_itself_alone() -> None:
    for broken in (r"\frac{x}", r"\log_{}x"):
        assert is_right(broken, broken)
        assert not is_right("x", broken)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "refused", "taken"), [("pairs", 0.03, 0), ("blind", 0.04, 1)])
def test_pairs_that_others_wrote(name: str, refused: float, taken: int) -> None:
    found = list(pairs(name))
    wrongly = [one for one in found if is_right(one.given, one.accepted) is not one.right]
    assert sum(not one.right for one in wrongly) <= taken
    assert sum(one.right for one in wrongly) < refused * sum(one.right for one in found)


def test_without_math_verify_numbers_words_and_choices_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    assert is_right(r"$\boxed{\frac{-3}{4}}$", "-0.75")
    assert is_right("friday", r"\text{Friday}")
    assert is_right("(C)", r"\text{C}")
    assert not is_right("48/2 = 24", "24")  # nor an error
    assert not is_right("2^{10}", "1024")
    assert is_right(r"$\sqrt{2}$", r"\sqrt{2}")
    with pytest.raises(MissingExtraError, match="mathematics"):
        is_right(r"\sqrt{8}", r"2\sqrt{2}")
