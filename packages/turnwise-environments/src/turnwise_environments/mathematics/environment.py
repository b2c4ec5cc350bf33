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
from turnwise.errors import ConfigError, ToolError
from turnwise.ranges import Share
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.result import Status
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.seeds import derive
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.mathematics.tasks import (
    STANDARD,
    MadeProblems,
    QuestionFile,
    Sums,
    numbers_in,
)
from turnwise_environments.rewards.mathematics import is_number, is_right
from turnwise_environments.rewards.numeric import matches
from turnwise_environments.tools.calculator import Number, calculate, evaluate, show
from turnwise_sandbox.tools.python import observation

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


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


class Mathematics(Environment):
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
        limits = Limits(seconds=5.0, cpu_seconds=5.0, memory=256 * MEBIBYTE)
        if sandbox and interpreter != "python":
            raise ConfigError("mathematics: [sandbox] is for interpreter = 'python': remove it")
        self.sandbox = make_sandbox(sandbox, limits) if interpreter == "python" else None
        self._interpreter = interpreter
        self._written = 1.0 if interpreter == "none" else written
        self.task_set = tasks.load()

    def tools(self) -> list[Tool]:
        return [found for found in super().tools() if found.name == self._interpreter]

    @tool
    def calculator(self, expression: str) -> str:
        """Work out arithmetic such as (3 + 4) * 2: numbers, + - * / // % **, sqrt, round."""
        self._check_works()
        return calculate(expression)

    @tool
    def python(self, code: str) -> str:
        """Run a Python program and see what it prints. Nothing stays for the next one."""
        self._check_works()
        assert self.sandbox is not None
        result = self.sandbox.run_python(code).checked()
        text = observation(result, False)
        if result.status is not Status.OK:
            raise ToolError(text.split("\n")[-1])
        return text

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the last answer is the accepted number in its unit, or the accepted expression."""
        task, answer = trajectory.task, trajectory.answer
        accepted = task.secret["answer"]
        if is_number(accepted):
            success = matches(answer, accepted, task.secret["units"])
        else:
            success = await asyncio.to_thread(is_right, answer, accepted, None, task.prompt)
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
            Action("", f"step {number}", (self._call(expression),))
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
        if self._interpreter == "none":
            return {}
        return {f"no_{self._interpreter}": self.variant(NoInterpreter)}

    def _call(self, expression: str) -> ToolCall:
        if self._interpreter == "python":
            return ToolCall("python", {"code": f"print({expression})"})
        return ToolCall("calculator", {"expression": expression})

    def _callable(self) -> Mapping[str, Tool]:
        return {found.name: found for found in self.tools()}

    def _check_works(self) -> None:
        """Nothing: the tools work."""


class NoInterpreter(Mathematics):
    """The tool never works, so the model has to work out the answer."""

    def _check_works(self) -> None:
        raise ToolError(f"the {self._interpreter} does not work now")
