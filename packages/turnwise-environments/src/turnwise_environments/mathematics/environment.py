"""The mathematics environment: problems to solve with a calculator, with Python, or in writing.

A result of the solution is progress where it was worked out from numbers that were known: those of
the problem, results of earlier calculations, and constants that the solution itself uses: neither a
number that is typed in as it is, nor a sum that is made up around a guess.
"""

import asyncio
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import first_shown, gain_part, results_of, share
from turnwise.errors import ToolError
from turnwise.ranges import Share
from turnwise.sandbox.result import Result, Status
from turnwise.seeds import derive
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.mathematics.tasks import (
    STANDARD,
    MadeProblems,
    QuestionFile,
    Sums,
    numbers_in,
)
from turnwise_environments.rewards.mathematics import is_number, is_right
from turnwise_environments.tools.calculator import Number, calculate, evaluate, show
from turnwise_environments.tools.interpreter import BrokenInterpreter, InterpreterTools

_NUMBER = re.compile(r"(?<![0-9])[0-9]{1,99}+(?:\.[0-9]{1,99}+)?(?![0-9])")


def derived(trajectory: Trajectory) -> list[float]:
    """For each turn the share of the solution's results that a calculation of it comes to first; 0
    where no solution is known."""
    steps = trajectory.task.secret["solution"]
    given = set(_numbers(trajectory.task.prompt))
    results = [number.value for number in map(_worked_out, steps) if number is not None]
    wanted = [value for value in results if value not in given]
    known = given | {number for step in steps for number in _numbers(step)} - set(wanted)
    shown: list[list[Fraction]] = []
    for turn in trajectory.turns:
        found = []
        for result in results_of(turn, "calculator"):
            expression = str(result.call.arguments.get("expression", ""))
            number = _worked_out(expression)
            if number is None or show(number) != result.content:
                continue
            if known.issuperset(_numbers(expression)):
                known |= {number.value, *_numbers(result.content)}
                found.append(number.value)
        shown.append(found)
    return first_shown([[value] for value in wanted], shown)


def _worked_out(expression: str) -> Number | None:
    try:
        return evaluate(expression)
    except ToolError:
        return None


def _numbers(text: str) -> Iterator[Fraction]:
    return map(Fraction, _NUMBER.findall(text.replace(",", "")))


_SUM = re.compile(r"[0-9]+(\+[0-9]+)+")


def written_out(expressions: Sequence[str]) -> str:
    """The work on each expression, in order.

    >>> written_out(["7 + 4 + 9"])
    '7+4+9=11+9=20'
    >>> written_out(["12 * 3", "36 - 7"])
    '12*3=36 36-7=29'
    """
    return " ".join(_lines(expression.replace(" ", "")) for expression in expressions)


def _lines(expression: str) -> str:
    if not _SUM.fullmatch(expression):
        return f"{expression}={calculate(expression)}"
    numbers = [int(number) for number in expression.split("+")]
    left = [[sum(numbers[:place]), *numbers[place:]] for place in range(1, len(numbers) + 1)]
    return "=".join("+".join(map(str, line)) for line in left)


PARTS = {
    "correct": share("whether the answer is right"),
    "checked": share("whether a thought says that it checks the result"),
    "progress": gain_part("share of the solution's results that are worked out for the first time"),
}
CHECK = "check"
"""The word by which a thought says that it checks."""


class Mathematics(InterpreterTools):
    """Answer a problem with a number; the one tool is a calculator or Python, or there is none.
    Example: `Mathematics(tasks=QuestionFile("gsm8k/train.jsonl", heldout_share=0.1))`."""

    facts = EnvironmentSpec("mathematics", "1", parts=PARTS)
    stateless = True

    def __init__(
        self,
        tasks: MadeProblems | QuestionFile | Sums = STANDARD,
        interpreter: Literal["calculator", "python", "none"] = "calculator",
        written: Share = 0.0,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """The oracle writes the calculation of a share `written` of the tasks out in its thought,
        and of all without an `interpreter`. `sandbox` is a recipe's table for `python` (see
        `make_sandbox`)."""
        self.set_interpreter(interpreter, sandbox)
        self._written = 1.0 if interpreter == "none" else written
        self.task_set = tasks.load()

    def _printed(self, result: Result) -> str:
        text = super()._printed(result)
        if result.status is not Status.OK:
            raise ToolError(text.split("\n")[-1])
        return text

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the last answer is the accepted number in its unit, or the accepted expression."""
        task, answer = trajectory.task, trajectory.answer
        accepted = task.secret["answer"]
        units = task.secret["units"] if is_number(accepted) else None
        success = await asyncio.to_thread(is_right, answer, accepted, units, task.prompt)
        checked = any(CHECK in turn.action.thought.lower() for turn in trajectory.turns)
        parts = {"correct": float(success), "checked": float(checked)}
        turn_parts = {"progress": derived(trajectory)}
        detail = f"answered {trajectory.answer!r}"
        return Verdict(float(success), success, parts, detail, turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        """Work out each step, then answer; or both in one turn, in writing."""
        steps, answer = task.secret["solution"], task.secret["answer"]
        if derive("written", task.id) < self._written * 2**63:
            return [Action("", written_out(steps), answer=answer)]
        work = [
            Action("", f"step {number}", (self.calculation(expression),))
            for number, expression in enumerate(steps, start=1)
        ]
        return [*work, Action("", "that is it", answer=answer)]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Two numbers of the question, put together with + - * or /."""
        numbers = [str(number) for number in numbers_in(task.prompt)]
        if len(numbers) < 2:
            return [Action("", answer="")]
        first, second = stream.sample(numbers, 2)
        try:
            made = evaluate(f"{first} {stream.choice('+-*/')} {second}")
        except ToolError:  # a division by zero
            return [Action("", answer="")]
        return [Action("", answer=str(made.value))]

    def ablations(self) -> Mapping[str, Environment]:
        """A variant whose calculator or Python does not work."""
        if self.interpreter == "none":
            return {}
        return {f"no_{self.interpreter}": self.under(BrokenInterpreter)}
