"""The tasks of mathematics: word problems and sums, made by program, or files of GSM8K's or MATH's.

A draft becomes a word problem only if every step has a whole result on the way, the answer has at
most two decimal places, and neither it nor a result on the way is a number that the text already
has, so that copying a number is never right. A task's secret is the accepted number, its unit's
names where they are known, and the way there. Both splits are decided by content.
"""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

from turnwise.environments.tasksets import SOLVED, Draft, TaskFile, Tasks, TaskSet, drafted, every
from turnwise.errors import ConfigError, DataError
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import check_installed, identity
from turnwise_environments.rewards.expressions import closing, plain, read_expression, unit_of
from turnwise_environments.rewards.mathematics import is_number
from turnwise_environments.rewards.numeric import matches, read_quantity
from turnwise_environments.tools.calculator import evaluate, show

LARGEST = 5000
"""Largest result of any step."""
WITH_DECIMALS = ("dollars", "hours", "liters")
"""Units of which an answer may be no whole number."""

_NUMBER = re.compile(r"(?<![0-9])[0-9]{1,99}(?![0-9])")
_RANGE = re.compile(r"(\w):(\d+)-(\d+)(?:/(\d+))?")
NAMES = ("Ada", "Ben", "Eva", "Ida", "Jan", "Leo", "Max", "Mia", "Noa", "Sam", "Tom", "Zoe")
THINGS = ("apples", "beads", "books", "cards", "eggs", "nuts", "pens", "plums", "shells", "stamps")


class Template(NamedTuple):
    """A part of a story. Example: Template("{name} finds {a} more.", "{v} + {a}", "a:2-40")."""

    text: str
    sum: str = ""
    """The sum to work out in one step, if there is one."""
    numbers: str = ""
    """The range of each new number: `a:2-40 b:5-95/5` (from, to, in steps of)."""
    unit: str = ""
    """Unit of the amount from here on; empty where it stays."""


Kind = Mapping[str, Sequence[Template]]
"""Templates that fit together: `beginnings`, any `changes`, `questions`."""
KINDS: Mapping[str, Kind] = {
    name: {
        part: [Template(*(cell.strip() for cell in row.split("|"))) for row in rows]
        for part, rows in kind.items()
    }
    for name, kind in tomllib.loads(
        files("turnwise_environments.mathematics").joinpath("stories.toml").read_text()
    ).items()
}


@dataclass(frozen=True)
class Problem:
    """Example: Problem("Ada has 12 nuts. ...", ("12 + 5",), "17", "nuts", "things", key=...)."""

    text: str
    steps: tuple[str, ...]
    """Expressions to work out; each but the first uses the result before it."""
    answer: str
    unit: str
    kind: str
    key: str
    """Templates and numbers: the same for problems that differ in names and things only."""


def problems(min_steps: int, max_steps: int, drafts: int) -> Iterator[Problem]:
    """Different problems, the same in every process; a draft that is not sound is passed over."""
    seen = set()
    for number in range(drafts):
        stream = random.Random(derive("mathematics", number))
        problem = _draft(stream, stream.randint(min_steps, max_steps))
        if problem is not None and problem.key not in seen:
            seen.add(problem.key)
            yield problem


def numbers_in(text: str) -> list[int]:
    return [int(digits) for digits in _NUMBER.findall(text)]


class _Story:
    """A problem under construction."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream
        self._names = stream.sample(NAMES, len(NAMES))
        self._things = stream.choice(THINGS)
        self.text: list[str] = []
        self.key: list[str] = []
        self.steps: list[str] = []
        self.value: Fraction | None = None
        self.unit = ""

    def tell(self, template: Template) -> None:
        slots = {
            name: self._stream.randrange(int(low), int(high) + 1, int(step or 1))
            for name, low, high, step in _RANGE.findall(template.numbers)
        }
        people = {"name": self._names[0], "friend": self._names[len(self.text)]}
        self.text.append(template.text.format(**slots, **people, things=self._things))
        self.key.append(template.text.format(**slots, name="", friend="", things=""))
        self.unit = template.unit.format(things=self._things) or self.unit
        if template.sum:
            before = "" if self.value is None else str(self.value)
            self.steps.append(template.sum.format(**slots, v=before))
            self.value = evaluate(self.steps[-1]).value
        elif self.value is None:
            self.value = Fraction(slots["a"])

    def is_whole(self) -> bool:
        return self.value is not None and self.value.denominator == 1 and 0 < self.value <= LARGEST


def _draft(stream: random.Random, count: int) -> Problem | None:
    name = stream.choice(sorted(KINDS))
    story, kind = _Story(stream), KINDS[name]
    results: list[Fraction | None] = []
    for template in _plot(stream, kind, count):
        if results and not story.is_whole():
            return None
        steps = len(story.steps)
        story.tell(template)
        if len(story.steps) > steps:
            results.append(story.value)
    text = " ".join(story.text)
    if len(set(results)) < len(results) or set(results) & {*map(Fraction, numbers_in(text))}:
        return None
    value = story.value
    if value is None or not 0 < value <= LARGEST:
        return None
    places = 100 if story.unit in WITH_DECIMALS else 1
    if (value * places).denominator != 1:
        return None
    answer = show(evaluate(story.steps[-1]))
    return Problem(text, tuple(story.steps), answer, story.unit, name, "|".join(story.key))


def _plot(stream: random.Random, kind: Kind, count: int) -> list[Template]:
    """Templates with that many sums in all: a beginning, changes that differ, a question."""
    while True:
        beginning, question = stream.choice(kind["beginnings"]), stream.choice(kind["questions"])
        changes = count - bool(beginning.sum) - bool(question.sum)
        if 0 <= changes <= len(kind["changes"]):
            return [beginning, *stream.sample(kind["changes"], changes), question]


RANDOM_SCORE = 0.0455
"""Computed for the standard tasks: success of `random_actions`, all draws counted."""
DRAFTS_PER_TASK = 20
"""Problems that may be drafted for each one that is sound and new, at most."""
LEFT_OUT = "the answer is no number"
UNREADABLE = "the answer is neither a number nor an expression"

Steps = Annotated[int, Range(1, 4)]

_ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")
_MARK = "####"
HINT = " (fields are 'question' and 'answer', or MATH's 'problem' and 'solution' or 'answer')"


@dataclass(frozen=True)
class MadeProblems(Options):
    """`count` problems in each split, of `min_steps` to `max_steps` steps; no problem of one is in
    the other under other names."""

    count: Count = 1000
    min_steps: Steps = 1
    max_steps: Steps = 4

    def load(self) -> TaskSet:
        """Raises ConfigError where there are not so many."""
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
        """Raises ConfigError where there are not so many."""
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
    """The questions of a file in GSM8K's or MATH's format.

    A record of GSM8K's has `question` and `answer`; an answer is a number, or a solution that ends
    with `#### number`, in which `<<48/2=24>>` marks what a calculator was used for. One of MATH's
    has `problem`, and `answer` or a `solution` with it in its last `\\boxed{}`, in LaTeX. Answers
    that are no numbers, but expressions, intervals or words, are left out; `expressions` keeps
    all but words (extra `mathematics`).
    """

    expressions: bool = False

    def load(self) -> TaskSet:
        """Records without a question or an answer are broken, and so are an answer of GSM8K's that
        is no number, and another answer to a question that was there before."""
        known: dict[str, Task] = {}
        if self.expressions:
            check_installed("math-verify", "mathematics")

        def read(record: Mapping[str, Any], where: str) -> Task | str:
            task = _question(record, where)
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


def _question(record: Mapping[str, Any], where: str) -> Task:
    record = {name: one for name, one in record.items() if one is not None}  # Parquet has these
    field = "problem" if "problem" in record else "question"
    question, answer = record.get(field, ""), record.get("answer", record.get("solution", ""))
    if isinstance(answer, int | float):
        answer = str(answer)
    for name, text in ((field, question), ("answer", answer)):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: {name!r} must be there, a string that is not empty{HINT}")
    if field == "problem":
        answer = answer if "answer" in record else _boxed(answer)
        quantity = read_quantity(answer)
        units = [quantity.unit] if quantity and quantity.unit else None
        return _task(question, answer.strip(), [], units)
    solution, mark, final = answer.rpartition(_MARK)
    if mark and read_quantity(final) is None:
        raise DataError(f"{where}: 'answer' must be a number after {_MARK}, not {final.strip()!r}")
    steps = [expression.strip() for expression, _ in _ANNOTATION.findall(solution)]
    return _task(question, final.strip(), steps)


def _is_same(one: str, other: str) -> bool:
    if is_number(other):
        return matches(one, other)
    return plain(one) == plain(other)


def _boxed(solution: str) -> str:
    """The content of a solution's last \\boxed{}, braces in it included; "" without one."""
    _, mark, rest = solution.rpartition("\\boxed{")
    return rest[: closing(rest) or 0] if mark else ""


def _task(text: str, answer: str, steps: list[str], units: list[str] | None = None) -> Task:
    question = text.strip()
    secret = {"answer": answer, "units": units, "solution": steps}
    return Task(_id(question), question, secret, info={"steps": len(steps)})


def _id(question: str) -> str:
    """Hash of the words alone: the same for questions that differ in case and spaces."""
    return identity(" ".join(question.lower().split()))
