"""Functions made by program: some steps over a list of whole numbers, in words and in Python.

A draft is kept only if no step of it can be left out: without one, it would give something else on
the inputs that are tried. Functions that do the same are one. Not here: tasks (`tasks.py`).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.seeds import derive

Values = list[int]


@dataclass(frozen=True)
class Step:
    """Example: Step("double each", "[v * 2 for v in values]", ...). `{n}` is a number."""

    words: str
    code: str
    function: Callable[[Values, int], Any]
    numbers: tuple[int, int] = (0, 0)
    """The least and the greatest {n}."""


STEPS = (
    Step("keep the even ones", "[v for v in values if v % 2 == 0]", lambda v, n: _if(v, _even)),
    Step("keep the odd ones", "[v for v in values if v % 2 == 1]", lambda v, n: _if(v, _odd)),
    Step(
        "keep those above {n}",
        "[v for v in values if v > {n}]",
        lambda v, n: [x for x in v if x > n],
        (-3, 9),
    ),
    Step(
        "keep those below {n}",
        "[v for v in values if v < {n}]",
        lambda v, n: [x for x in v if x < n],
        (0, 12),
    ),
    Step(
        "drop those that {n} divides",
        "[v for v in values if v % {n} != 0]",
        lambda v, n: [x for x in v if x % n],
        (3, 7),
    ),
    Step(
        "add {n} to each",
        "[v + {n} for v in values]",
        lambda v, n: [x + n for x in v],
        (1, 9),
    ),
    Step(
        "multiply each by {n}",
        "[v * {n} for v in values]",
        lambda v, n: [x * n for x in v],
        (2, 9),
    ),
    Step("square each", "[v * v for v in values]", lambda v, n: [x * x for x in v]),
    Step("negate each", "[-v for v in values]", lambda v, n: [-x for x in v]),
    Step("take each one's absolute value", "[abs(v) for v in values]", lambda v, n: _each(v, abs)),
    Step(
        "replace each by its remainder after division by {n}, which is 0 or more",
        "[v % {n} for v in values]",
        lambda v, n: [x % n for x in v],
        (3, 9),
    ),
    Step("sort them from small to large", "sorted(values)", lambda v, n: sorted(v)),
    Step("reverse their order", "values[::-1]", lambda v, n: v[::-1]),
    Step(
        "drop repetitions, keeping the first of each",
        "list(dict.fromkeys(values))",
        lambda v, n: list(dict.fromkeys(v)),
    ),
    Step("keep the first {n}", "values[:{n}]", lambda v, n: v[:n], (2, 4)),
    Step("keep the last {n}", "values[-{n}:]", lambda v, n: v[-n:], (2, 4)),
    Step("keep every second one, from the first on", "values[::2]", lambda v, n: v[::2]),
    Step(
        "replace each by the sum of all up to it",
        "[sum(values[:i + 1]) for i in range(len(values))]",
        lambda v, n: [sum(v[: i + 1]) for i in range(len(v))],
    ),
)
ENDS = (
    Step("return the list", "values", lambda v, n: v),
    Step("return their sum", "sum(values)", lambda v, n: sum(v)),
    Step(
        "return the largest, or 0 if there is none",
        "max(values, default=0)",
        lambda v, n: max(v, default=0),
    ),
    Step(
        "return the smallest, or 0 if there is none",
        "min(values, default=0)",
        lambda v, n: min(v, default=0),
    ),
    Step("return how many there are", "len(values)", lambda v, n: len(v)),
    Step(
        "return how many different ones there are",
        "len(set(values))",
        lambda v, n: len(set(v)),
    ),
    Step(
        "return them as text, with - between them",
        '"-".join(str(v) for v in values)',
        lambda v, n: "-".join(map(str, v)),
    ),
    Step(
        "return the largest minus the smallest, or 0 if there is none",
        "max(values, default=0) - min(values, default=0)",
        lambda v, n: max(v, default=0) - min(v, default=0),
    ),
)


def _even(value: int) -> bool:
    return value % 2 == 0


def _odd(value: int) -> bool:
    return value % 2 == 1


def _if(values: Values, test: Callable[[int], bool]) -> Values:
    return [value for value in values if test(value)]


def _each(values: Values, function: Callable[[int], int]) -> Values:
    return [function(value) for value in values]


@dataclass(frozen=True)
class Pipeline:
    """Steps with their numbers, the last one of ENDS."""

    steps: tuple[tuple[Step, int], ...]

    def __call__(self, values: Sequence[int]) -> Any:
        """Apply the steps to values, as the function does."""
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
        """The steps as a Python function."""
        *steps, (end, _) = self.steps
        lines = [f"    values = {step.code.format(n=number)}" for step, number in steps]
        return "\n".join([f"def {name}(values):", *lines, f"    return {end.code}", ""])

    def shorter(self) -> Iterator["Pipeline"]:
        """All pipelines with one step less."""
        for place in range(len(self.steps) - 1):
            yield Pipeline(self.steps[:place] + self.steps[place + 1 :])


def inputs() -> list[Values]:
    """The values that functions are tried on: edges, and lists with repetitions and negatives."""
    stream = random.Random(derive("code", "inputs"))
    drawn = [
        [stream.randint(-12, 24) for _ in range(size)] for size in (3, 4, 5, 6, 7, 8, 9, 10, 12)
    ]
    return [[], [0], [7], [-4], [5, 5, 2, 5], *drawn]


def draw(stream: random.Random, most_steps: int) -> Pipeline:
    """A random one of one to `most_steps` steps and an end."""
    steps = stream.sample(STEPS, stream.randint(1, most_steps))
    chosen = [(step, stream.randint(*step.numbers)) for step in [*steps, stream.choice(ENDS)]]
    return Pipeline(tuple(chosen))


def is_sound(pipeline: Pipeline, tried: Sequence[Values]) -> bool:
    """Whether each step is needed, and results differ."""
    results = [pipeline(values) for values in tried]
    if len({str(result) for result in results}) < 4:
        return False
    others = [*pipeline.shorter(), *(Pipeline(((end, 0),)) for end in ENDS)]
    return all([other(values) for values in tried] != results for other in others)
