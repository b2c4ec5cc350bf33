"""The mathematics environment: word problems that are solved with a calculator.

Problems are made by program (`problems.py`), or read from a user's files in GSM8K's format; the
answer must be the number itself (`rewards/numeric.py`), or the expression (`rewards/symbolic.py`).
Not here: proofs (`environments/proofs`).
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.mathematics.problems import numbers_in
from turnwise.environments.mathematics.progress import derived
from turnwise.environments.mathematics.tasks import STANDARD, MadeProblems, QuestionFile
from turnwise.environments.turn_parts import gain_part, share
from turnwise.errors import ToolError
from turnwise.rewards.mathematics import is_number, is_right
from turnwise.rewards.numeric import matches
from turnwise.tools.calculator import calculate, evaluate
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict

PARTS = {
    "correct": share("whether the answer is right"),
    "progress": gain_part("share of the solution's results that are worked out for the first time"),
}


class Mathematics(Environment):
    """Answer a word problem with a number; the one tool is a calculator.

    Example:
        Mathematics(tasks=QuestionFile("gsm8k/train.jsonl", heldout_share=0.1))
    """

    facts = EnvironmentSpec("mathematics", "1", parts=PARTS)
    stateless = True

    def __init__(self, tasks: MadeProblems | QuestionFile = STANDARD) -> None:
        """Raises DataError for a file that is broken."""
        self.task_set = tasks.load()

    @tool
    def calculator(self, expression: str) -> str:
        """Work out arithmetic such as (3 + 4) * 2: numbers, + - * / // % **, sqrt, round."""
        return calculate(expression)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the model's own last answer is the accepted number in the unit asked for, or the
        accepted expression."""
        task, answer = trajectory.task, trajectory.answer
        accepted = task.secret["answer"]
        if is_number(accepted):
            success = matches(answer, accepted, task.secret["units"])
        else:
            success = await asyncio.to_thread(is_right, answer, accepted, None, task.prompt)
        parts = {"correct": float(success)}
        turn_parts = {"progress": derived(trajectory)}
        detail = f"answered {trajectory.answer!r}"
        return Verdict(float(success), success, parts, detail, turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        """Work out each step, then answer."""
        steps = task.secret["solution"]
        work = [
            Action("", f"step {number}", (ToolCall("calculator", {"expression": expression}),))
            for number, expression in enumerate(steps, start=1)
        ]
        return [*work, Action("", "that is it", answer=task.secret["answer"])]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """An answer: two numbers of the question, put together with + - * or /."""
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
        """A variant whose calculator does not work."""
        return {"no_calculator": self.variant(NoCalculator)}


class NoCalculator(Mathematics):
    """An ablation: the tool is there and never works, so the model has to work out the answer."""

    @tool
    def calculator(self, expression: str) -> str:
        """Work out arithmetic such as (3 + 4) * 2: numbers, + - * / // % **, sqrt, round."""
        del expression
        raise ToolError("the calculator does not work now")
