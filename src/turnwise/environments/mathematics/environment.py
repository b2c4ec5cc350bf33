"""The mathematics environment: word problems that are solved with a calculator.

Problems are made by program (`problems.py`), or read from a user's files in GSM8K's format; the
answer must be the number itself (`rewards/numeric.py`). Not here: proofs, algebra, several answers.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.mathematics.problems import numbers_in
from turnwise.environments.mathematics.tasks import made_tasks, read_questions, tasks_hash
from turnwise.errors import ConfigError, ToolError
from turnwise.rewards.numeric import matches
from turnwise.tools.calculator import calculate, evaluate
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict

COUNT, MIN_STEPS, MAX_STEPS = 1000, 1, 4
RANDOM_SCORE = 0.0455
"""Computed for the standard tasks: success of an agent that puts two different numbers of the
question, drawn at random, together with + - * or /, exactly (all draws are counted)."""
HELDOUT_SHARE = 0.5


class Mathematics(Environment):
    """Answer a word problem with a number; the one tool is a calculator.

    Example:
        Mathematics(questions="gsm8k/train.jsonl", heldout_share=0.1)
    """

    def __init__(
        self,
        count: int = COUNT,
        min_steps: int = MIN_STEPS,
        max_steps: int = MAX_STEPS,
        questions: str | None = None,
        heldout_share: float = HELDOUT_SHARE,
    ) -> None:
        """`count` made problems in each split, of `min_steps` to `max_steps` steps; or those of
        `questions`, a .jsonl or .json file in GSM8K's or MATH's format, of which `heldout_share`
        is held out.

        Raises ConfigError for options that make no sense, DataError for a file that is broken.
        """
        made = (count, min_steps, max_steps)
        if count < 1 or not 1 <= min_steps <= max_steps <= MAX_STEPS:
            raise ConfigError(
                f"mathematics: count is 1 or more, and 1 <= min_steps <= max_steps <= {MAX_STEPS}"
            )
        if not 0 <= heldout_share <= 1:
            raise ConfigError(f"mathematics: heldout_share is {heldout_share}: give 0 to 1")
        if questions is None and heldout_share != HELDOUT_SHARE:
            raise ConfigError("mathematics: heldout_share is for your own questions: give a path")
        if questions is not None and made != (COUNT, MIN_STEPS, MAX_STEPS):
            raise ConfigError("mathematics: count and steps are for made problems, not for a file")
        self._reference_scores = {"noop": 0.0}
        if questions is not None:
            place = Path(questions).expanduser()
            self._tasks, self.warnings = read_questions(place, heldout_share)
        else:
            self._tasks = made_tasks(*made)
            self._reference_scores["oracle"] = 1.0
        if questions is None and made == (COUNT, MIN_STEPS, MAX_STEPS):
            self._reference_scores["random"] = RANDOM_SCORE
        self._data_hash = tasks_hash(self._tasks)

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all questions and answers; the perfect agent is known to succeed on made
        problems only."""
        return EnvironmentSpec("mathematics", "1", self._data_hash, self._reference_scores)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    @tool
    def calculator(self, expression: str) -> str:
        """Work out arithmetic such as (3 + 4) * 2: numbers, + - * / // % **, sqrt, round."""
        return calculate(expression)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the model's own last answer is the accepted number in the unit asked for."""
        secret = trajectory.task.secret
        success = matches(trajectory.answer, secret["answer"], secret["units"])
        parts = {"correct": float(success)}
        return Verdict(float(success), success, parts, f"answered {trajectory.answer!r}")

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
        variant = NoCalculator.__new__(NoCalculator)
        vars(variant).update(vars(self))
        return {"no_calculator": variant}

    def snapshot(self) -> bytes:
        """Nothing: a calculation changes nothing, so an episode has no state here."""
        return b""

    def restore(self, state: bytes) -> None:
        """Accepts what `snapshot` gave. Raises ValueError for anything else."""
        if state:
            raise ValueError(f"not a snapshot of mathematics: {len(state)} bytes")


class NoCalculator(Mathematics):
    """An ablation: the tool is there and never works, so the model has to work out the answer."""

    @tool
    def calculator(self, expression: str) -> str:
        """Work out arithmetic such as (3 + 4) * 2: numbers, + - * / // % **, sqrt, round."""
        del expression
        raise ToolError("the calculator does not work now")
