"""Word problems made by program: one to four steps, and an answer that is known by construction.

A draft becomes a problem only if every step has a whole result on the way, the answer has at most
two decimal places, and neither it nor a result on the way is a number that the text already has, so
that copying a number is never right. Not here: sentences (`stories.py`), the split (`tasks.py`).
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from turnwise.seeds import derive
from turnwise_environments.mathematics.stories import KINDS, NAMES, THINGS, Kind, Template
from turnwise_environments.tools.calculator import evaluate, show

LARGEST = 5000
"""Largest result of any step."""
WITH_DECIMALS = ("dollars", "hours", "liters")
"""Units of which an answer may be no whole number."""

_NUMBER = re.compile(r"[0-9]+")
_RANGE = re.compile(r"(\w):(\d+)-(\d+)(?:/(\d+))?")


@dataclass(frozen=True)
class Problem:
    """Example: Problem("Ada has 12 nuts. Ben gives Ada 5 more. How many nuts does Ada have now?",
    ("12 + 5",), "17", "nuts", "things", key=...)."""

    text: str
    steps: tuple[str, ...]
    """Expressions to work out, one after the other; each but the first uses the result before
    it."""
    answer: str
    unit: str
    kind: str
    key: str
    """Templates and numbers of the problem: the same for problems that differ in names and things
    only."""


def problems(min_steps: int, max_steps: int, drafts: int) -> Iterator[Problem]:
    """Different problems, the same in every process: draft i is drawn from a seed of its own, from
    all kinds and numbers of steps alike; one that is not sound is passed over."""
    seen = set()
    for number in range(drafts):
        stream = random.Random(derive("mathematics", number))
        problem = _draft(stream, stream.randint(min_steps, max_steps))
        if problem is not None and problem.key not in seen:
            seen.add(problem.key)
            yield problem


def numbers_in(text: str) -> list[int]:
    """The numbers of a problem's text, in order."""
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
        """Add a template, with new numbers."""
        slots = {
            name: self._stream.randrange(int(low), int(high) + 1, int(step or 1))
            for name, low, high, step in _RANGE.findall(template.numbers)
        }
        people = {"name": self._names[0], "friend": self._names[len(self.text)]}
        self.text.append(template.text.format(**slots, **people, things=self._things))
        self.key.append(template.text.format(**slots, name="", friend="", things=""))
        self.unit = template.unit.format(things=self._things) or self.unit
        if template.sum:
            self.steps.append(template.sum.format(**slots, v=self._shown()))
            self.value = evaluate(self.steps[-1]).value
        elif self.value is None:
            self.value = Fraction(slots["a"])

    def _shown(self) -> str:
        return "" if self.value is None else str(self.value)

    def is_whole(self) -> bool:
        """Whether the amount is a whole number of a usual size."""
        return self.value is not None and self.value.denominator == 1 and 0 < self.value <= LARGEST


def _draft(stream: random.Random, count: int) -> Problem | None:
    """A problem of that many steps, or None where what was drawn is not sound."""
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
        beginning, question = stream.choice(kind.beginnings), stream.choice(kind.questions)
        changes = count - bool(beginning.sum) - bool(question.sum)
        if 0 <= changes <= len(kind.changes):
            return [beginning, *stream.sample(kind.changes, changes), question]
