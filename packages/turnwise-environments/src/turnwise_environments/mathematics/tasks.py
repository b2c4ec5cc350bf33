"""The tasks of the mathematics environment: made by program, as stories or as plain sums, or read
from files in GSM8K's or MATH's format.

A task's secret is the accepted number, its unit's names where they are known, and the way there.
Both splits are decided by content. Not here: how problems are made (`problems.py`).
"""

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from turnwise.environments.tasksets import SOLVED, Draft, TaskFile, Tasks, TaskSet, drafted, every
from turnwise.errors import ConfigError, DataError
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.mathematics.problems import Problem, problems
from turnwise_environments.rewards.expressions import plain, read_expression, unit_of
from turnwise_environments.rewards.mathematics import is_number
from turnwise_environments.rewards.numeric import matches, read_quantity
from turnwise_environments.rewards.symbolic import check_installed

RANDOM_SCORE = 0.0455
"""Computed for the standard tasks: success of an agent that puts two different numbers of the
question, drawn at random, together with + - * or /, exactly (all draws are counted)."""
DRAFTS_PER_TASK = 20
"""Problems that may be drafted for each one that is sound and new, at most."""
LEFT_OUT = "the answer is no number"
UNREADABLE = "the answer is neither a number nor an expression"

Steps = Annotated[int, Range(1, 4)]

_ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")
_MARK = "####"


@dataclass(frozen=True)
class MadeProblems(Options):
    """`count` problems in each split, of `min_steps` to `max_steps` steps; no problem of one is in
    the other under other names."""

    count: Count = 1000
    min_steps: Steps = 1
    max_steps: Steps = 4

    def load(self) -> TaskSet:
        """Make them. Raises ConfigError where there are not so many."""
        if self.min_steps > self.max_steps:
            raise ConfigError("mathematics: min_steps is above max_steps: lower it")
        drafts = problems(self.min_steps, self.max_steps, 2 * self.count * DRAFTS_PER_TASK)
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        made = (Draft(one.key, partial(_made, one)) for one in drafts)
        return TaskSet.made("mathematics", made, self.count, scores, content=_content)


STANDARD = MadeProblems()


@dataclass(frozen=True)
class Sums(Options):
    """`count` plain sums in each split, of `terms` numbers of `digits` digits each."""

    digits: Annotated[int, Range(1, 9)]
    terms: Annotated[int, Range(2, 20)] = 2
    count: Count = 1000

    def load(self) -> TaskSet:
        """Make them. Raises ConfigError where there are not so many."""
        drafts = drafted(self._draft, 2 * self.count * DRAFTS_PER_TASK)
        return TaskSet.made("mathematics", drafts, self.count, content=_content)

    def _draft(self, number: int) -> Draft:
        stream = random.Random(derive("sums", self.digits, self.terms, number))
        lowest = 10 ** (self.digits - 1)
        numbers = [stream.randrange(lowest, 10 * lowest) for _ in range(self.terms)]
        expression = "+".join(map(str, numbers))
        problem = Problem(
            f"What is {expression}?", (expression,), str(sum(numbers)), "", "sum", expression
        )
        return Draft(expression, partial(_made, problem))


@dataclass(frozen=True)
class QuestionFile(TaskFile):
    """The questions of a .jsonl or .json file in GSM8K's or MATH's format.

    A record of GSM8K's has `question` and `answer`; an answer is a number, or a solution that ends
    with `#### number`, in which `<<48/2=24>>` marks what a calculator was used for. One of MATH's
    has `problem`, and `answer` or a `solution` with it in its last `\\boxed{}`, in LaTeX; those
    that are no numbers, but expressions, intervals or words, are left out; `expressions` keeps
    all but words (extra `mathematics`).
    """

    expressions: bool = False

    def load(self) -> TaskSet:
        """Read them. Raises DataError, naming file and line, for what is missing, for an answer of
        GSM8K's that is not a number, and for a question with two answers."""
        known: dict[str, Task] = {}
        if self.expressions:
            check_installed()

        def read(record: Mapping[str, Any], where: str) -> Task | str:
            task = _of_math(record, where) if "problem" in record else _of_gsm8k(record, where)
            answer = task.secret["answer"]
            if not is_number(answer) and not self.expressions:
                return LEFT_OUT
            if not is_number(answer) and read_expression(answer, unit_of(answer)) is None:
                return UNREADABLE
            first = known.setdefault(task.id, task)
            if not _is_same(answer, first.secret["answer"]):
                raise DataError(f"{where}: the question was there before, with another answer")
            return first

        return TaskSet.read(self, read, "questions", {"noop": 0.0}, content=_content)


def _made(problem: Problem) -> Task:
    units = [problem.unit] if problem.unit else None
    secret = {"answer": problem.answer, "units": units, "solution": list(problem.steps)}
    info = {"steps": len(problem.steps), "kind": problem.kind}
    return Task(_id(problem.text), problem.text, secret, info=info)


def _content(tasks: Tasks) -> str:
    return "".join(
        f"{split}\x1f{task.prompt}\x1f{task.secret['answer']}\x1e" for split, task in every(tasks)
    )


def _of_gsm8k(record: Mapping[str, Any], where: str) -> Task:
    for name in ("question", "answer"):
        if not isinstance(record.get(name), str) or not record[name].strip():
            raise DataError(
                f"{where}: {name!r} must be there, a string that is not empty (fields are "
                "'question' and 'answer', or MATH's 'problem' and 'solution' or 'answer')"
            )
    solution, mark, final = record["answer"].rpartition(_MARK)
    answer = final.strip()
    if read_quantity(answer) is None:
        form = f"after {_MARK}" if mark else f"or a solution that ends with {_MARK} and a number"
        raise DataError(f"{where}: 'answer' must be a number {form}, not {answer!r:.40}")
    steps = [expression.strip() for expression, _ in _ANNOTATION.findall(solution)]
    return _task(record["question"], answer, steps)


def _is_same(one: str, other: str) -> bool:
    if is_number(other):
        return matches(one, other)
    return plain(one) == plain(other)


def _of_math(record: Mapping[str, Any], where: str) -> Task:
    question, answer = record["problem"], record.get("answer", record.get("solution"))
    if not all(isinstance(one, str) and one.strip() for one in (question, answer)):
        raise DataError(
            f"{where}: 'problem', and 'answer' or 'solution', must be there, as strings"
        )
    answer = (answer if "answer" in record else _boxed(answer)).strip()
    quantity = read_quantity(answer)
    return _task(question, answer, [], [quantity.unit] if quantity and quantity.unit else None)


def _boxed(solution: str) -> str:
    """The content of a solution's last \\boxed{}, braces in it included; "" without one."""
    _, mark, rest = solution.rpartition("\\boxed{")
    depth = 1
    for place, character in enumerate(rest if mark else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:place]
    return ""


def _task(text: str, answer: str, steps: list[str], units: list[str] | None = None) -> Task:
    question = text.strip()
    secret = {"answer": answer, "units": units, "solution": steps}
    return Task(_id(question), question, secret, info={"steps": len(steps)})


def _id(question: str) -> str:
    """Hash of the words alone: the same for questions that differ in case and spaces."""
    return hashlib.sha256(" ".join(question.lower().split()).encode()).hexdigest()[:16]
