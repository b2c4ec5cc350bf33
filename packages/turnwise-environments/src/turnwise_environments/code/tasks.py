"""The tasks of the code environment: made functions with hidden calls, and programs to repair.

A made function is some steps over a list of whole numbers. A draft is kept only if no step of it
can be left out: without one, it would give something else on the inputs that are tried. Functions
that do the same are one.

Programs are in QuixBugs' format: `name`, `buggy`, `correct`, and `tests`, each [arguments,
expected], in JSON: tuples and generators are lists, and 2.0 is 2. A function with a parameter
`epsilon` may be off by it.
"""

import ast
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from turnwise.environments.tasksets import SOLVED, Draft, TaskFile, Tasks, TaskSet, drafted, every
from turnwise.errors import DataError
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import check_texts, identity

Values = list[int]


@dataclass(frozen=True)
class Step:
    """Example: Step("double each", "[v * 2 for v in values]")."""

    words: str
    code: str
    """An expression of `values`, and of the number `{n}`."""
    numbers: tuple[int, int] = (0, 0)
    """The least and the greatest {n}."""

    @cached_property
    def function(self) -> Callable[[Values, int], Any]:
        found: Callable[[Values, int], Any] = eval(f"lambda values, n: {self.code.format(n='n')}")
        return found


STEPS = (
    Step("keep the even ones", "[v for v in values if v % 2 == 0]"),
    Step("keep the odd ones", "[v for v in values if v % 2 == 1]"),
    Step("keep those above {n}", "[v for v in values if v > {n}]", (-3, 9)),
    Step("keep those below {n}", "[v for v in values if v < {n}]", (0, 12)),
    Step("drop those that {n} divides", "[v for v in values if v % {n} != 0]", (3, 7)),
    Step("add {n} to each", "[v + {n} for v in values]", (1, 9)),
    Step("multiply each by {n}", "[v * {n} for v in values]", (2, 9)),
    Step("square each", "[v * v for v in values]"),
    Step("negate each", "[-v for v in values]"),
    Step("take each one's absolute value", "[abs(v) for v in values]"),
    Step(
        "replace each by its remainder after division by {n}, which is 0 or more",
        "[v % {n} for v in values]",
        (3, 9),
    ),
    Step("sort them from small to large", "sorted(values)"),
    Step("reverse their order", "values[::-1]"),
    Step("drop repetitions, keeping the first of each", "list(dict.fromkeys(values))"),
    Step("keep the first {n}", "values[:{n}]", (2, 4)),
    Step("keep the last {n}", "values[-{n}:]", (2, 4)),
    Step("keep every second one, from the first on", "values[::2]"),
    Step(
        "replace each by the sum of all up to it",
        "[sum(values[:i + 1]) for i in range(len(values))]",
    ),
)
ENDS = (
    Step("return the list", "values"),
    Step("return their sum", "sum(values)"),
    Step("return the largest, or 0 if there is none", "max(values, default=0)"),
    Step("return the smallest, or 0 if there is none", "min(values, default=0)"),
    Step("return how many there are", "len(values)"),
    Step("return how many different ones there are", "len(set(values))"),
    Step("return them as text, with - between them", '"-".join(str(v) for v in values)'),
    Step(
        "return the largest minus the smallest, or 0 if there is none",
        "max(values, default=0) - min(values, default=0)",
    ),
)


@dataclass(frozen=True)
class Pipeline:
    """Steps with their numbers, the last one of ENDS."""

    steps: tuple[tuple[Step, int], ...]

    def __call__(self, values: Sequence[int]) -> Any:
        found: Any = list(values)
        for step, number in self.steps:
            found = step.function(found, number)
        return found

    @property
    def words(self) -> str:
        """The steps in words. Example: "Keep the even ones; then return their sum."."""
        parts = [step.words.format(n=number) for step, number in self.steps]
        text = "; then ".join(parts)
        return f"{text[0].upper()}{text[1:]}."

    def code(self, name: str) -> str:
        *steps, (end, _) = self.steps
        lines = [f"    values = {step.code.format(n=number)}" for step, number in steps]
        return "\n".join([f"def {name}(values):", *lines, f"    return {end.code}", ""])

    def shorter(self) -> Iterator["Pipeline"]:
        for place in range(len(self.steps) - 1):
            yield Pipeline(self.steps[:place] + self.steps[place + 1 :])


def inputs() -> list[Values]:
    """The values that functions are tried on: edges, repetitions, negatives."""
    stream = random.Random(derive("code", "inputs"))
    drawn = [
        [stream.randint(-12, 24) for _ in range(size)] for size in (3, 4, 5, 6, 7, 8, 9, 10, 12)
    ]
    return [[], [0], [7], [-4], [5, 5, 2, 5], *drawn]


def draw(stream: random.Random, most_steps: int) -> Pipeline:
    steps = stream.sample(STEPS, stream.randint(1, most_steps))
    chosen = [(step, stream.randint(*step.numbers)) for step in [*steps, stream.choice(ENDS)]]
    return Pipeline(tuple(chosen))


def is_sound(pipeline: Pipeline, tried: Sequence[Values]) -> bool:
    results = [pipeline(values) for values in tried]
    if len({str(result) for result in results}) < 4:
        return False
    others = [*pipeline.shorter(), *(Pipeline(((end, 0),)) for end in ENDS)]
    return all([other(values) for values in tried] != results for other in others)


NAME = "solve"
EXAMPLES = 2
"""Inputs that are shown with their results; they are not among the hidden ones."""
DRAFTS_PER_TASK = 200


RANDOM_SCORE = 0.0
"""Measured, none of the 2,000 standard tasks: success of a random function."""


@dataclass(frozen=True)
class MadeFunctions(Options):
    """`count` functions in each split, of one to `max_steps` steps; no function of one split does
    what one of the other does."""

    count: Count = 1000
    max_steps: Annotated[int, Range(1, 3)] = 3

    def load(self) -> TaskSet:
        """Raises ConfigError where there are not so many."""
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        drafts = drafted(self._draft, 2 * self.count * DRAFTS_PER_TASK)
        return TaskSet.made("code", drafts, self.count, scores, content=tasks_content)

    def _draft(self, number: int) -> Draft:
        stream, tried = random.Random(derive("code", number)), inputs()
        pipeline = draw(stream, self.max_steps)
        behaviour = json.dumps([pipeline(values) for values in tried])
        return Draft(
            behaviour, lambda: _task(pipeline, tried, stream) if is_sound(pipeline, tried) else None
        )


STANDARD = MadeFunctions()


def _task(pipeline: Pipeline, tried: Sequence[list[int]], stream: random.Random) -> Task:
    shown = [[stream.randint(-9, 20) for _ in range(5)] for _ in range(EXAMPLES)]
    examples = [f"{NAME}({values}) is {pipeline(values)!r}" for values in shown]
    prompt = (
        f"Write a Python function {NAME}(values). It takes a list of whole numbers. "
        f"{pipeline.words} For example, {', and '.join(examples)}."
    )
    secret = {
        "name": NAME,
        "solution": pipeline.code(NAME),
        "cases": [[[values], pipeline(values), None] for values in tried],
    }
    return Task(identity(prompt), prompt, secret, info={"steps": len(pipeline.steps) - 1})


def tasks_content(tasks: Tasks) -> str:
    rows = ([split, task.prompt, dict(task.secret)] for split, task in every(tasks))
    return "".join(map(json.dumps, rows))


SLOW = {("knapsack", 6404180), ("levenshtein", "amanaplanacanalpanama")}
"""Program and first argument of the tests that even the correct program has no time or memory for:
They are left out."""
ALL_SLOW = "all its tests need more time than there is"
TOLERANT = "epsilon"

_AS_JSON = """
from collections.abc import Iterator
from itertools import islice

from {module} import {name} as function


def plain(value):
    if isinstance(value, Iterator):
        value = list(islice(value, 100_000))
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {{str(key): plain(one) for key, one in value.items()}}
    return int(value) if type(value) is float and value.is_integer() else value


def call(*arguments):
    return plain(function(*arguments))
"""


def as_json(module: str, name: str) -> str:
    """A module whose `call` is the function, with its results as JSON has them."""
    return _AS_JSON.format(module=module, name=name)


@dataclass(frozen=True)
class ProgramFile(TaskFile):
    """The programs of a file in QuixBugs' format."""

    def load(self) -> TaskSet:
        """Raises DataError, naming file and line or entry, for a missing field or no program."""
        return TaskSet.read(self, read_program, "programs", content=tasks_content)


def read_program(record: Mapping[str, Any], where: str) -> Task | str:
    """The task of a record, or why it has none. Raises DataError."""
    check_texts(record, ("name", "buggy", "correct"), where)
    tests = record.get("tests")
    if not isinstance(tests, list) or not tests or not all(map(_is_test, tests)):
        raise DataError(f"{where}: 'tests' must be a list of [[arguments], expected]")
    name = record["name"]
    parameters = _parameters(record["correct"], name, where)
    place = parameters.index(TOLERANT) if TOLERANT in parameters else None
    try:
        cases = [
            [arguments, _plain(expected), None if place is None else float(arguments[place])]
            for arguments, expected in tests
            if not (arguments and isinstance(arguments[0], str | int))
            or (name, arguments[0]) not in SLOW
        ]
    except (IndexError, TypeError, ValueError):
        raise DataError(f"{where}: each of 'tests' must give {TOLERANT!r}, a number") from None
    if not cases:
        return ALL_SLOW
    prompt = (
        f"The Python function {name} does not do what it should. Repair it, and give the whole "
        f"program.\n\n{record['buggy'].strip()}"
    )
    secret = {"name": name, "solution": record["correct"], "cases": cases, "as_json": True}
    data = {"buggy": record["buggy"]}
    return Task(identity(prompt), prompt, secret, data, info={"program": name})


def _is_test(test: Any) -> bool:
    return isinstance(test, list) and len(test) == 2 and isinstance(test[0], list)


def _parameters(source: str, name: str, where: str) -> list[str]:
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{where}: 'correct' is no Python: {error}") from None
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [argument.arg for argument in node.args.args]
    raise DataError(f"{where}: 'correct' has no function {name!r}")


def _plain(value: Any) -> Any:
    """A result as `as_json` gives it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
