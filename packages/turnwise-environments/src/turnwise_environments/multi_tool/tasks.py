"""Questions about made-up towns, of four kinds, or some of them, as many of each.

A kind says what a question needs. An answer is never in its question, but for the kind `none`,
where nothing else is needed. Towns' names are put together from syllables, so that no model knows
them; each split has its own.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.environments.tasksets import SOLVED, SPLITS, Split, Tasks, TaskSet
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity, words_in
from turnwise_environments.tools.calculator import calculate

FIRST = ("Bre", "Mol", "Tar", "Vin", "Ost", "Kel", "Dun", "Ra", "Sel", "Gor", "Fa", "Hum", "Li")
SECOND = ("lin", "den", "vik", "mar", "ton", "by", "gard", "nes", "la", "sund", "berg", "o", "ra")
THIRD = ("", "en", "is", "a")
RIVERS = words_in(
    "osk tem irr wend aln bure cald esk fenn gade hest ilm jor kam lune mink nidd ouse pell "
    "rhee swale tave ure wye"
)
TOWNS = 240
"""Towns in each split."""


@dataclass(frozen=True)
class Town:
    """Example: Town("Brelin", "osk", 412, 1287)."""

    name: str
    river: str
    people: int
    year: int

    @property
    def document(self) -> str:
        return f"{self.name}. River: {self.river}. People: {self.people}. Founded: {self.year}."


def towns() -> dict[Split, list[Town]]:
    """TOWNS in each split, the same in every process; numbers of people differ."""
    stream = random.Random(derive("multi tool", "towns"))
    names = sorted({"".join(parts) for parts in itertools.product(FIRST, SECOND, THIRD)})
    chosen = stream.sample(names, 2 * TOWNS)
    people = stream.sample(range(101, 999), 2 * TOWNS)
    found = [
        Town(name, stream.choice(RIVERS), number, stream.randint(1001, 1899))
        for name, number in zip(chosen, people, strict=True)
    ]
    return {"train": found[:TOWNS], "heldout": found[TOWNS:]}


Kind = Literal["none", "search", "calculator", "both"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LARGEST = 999_999
COUNT = 1000
RANDOM_SCORE = 0.014
"""Measured on the standard tasks: success of a word of the question."""
FACTS = 3
"""Facts of a town."""
MOST = len(KINDS) * FACTS * TOWNS
"""Tasks in a split, at most: each question that needs a search alone is asked once."""


@dataclass(frozen=True)
class Question:
    """Example: Question("How many people has Brelin?", "412", ("Brelin",))."""

    text: str
    answer: str
    searches: tuple[str, ...] = ()
    """Names to be looked up."""
    sums: tuple[str, ...] = ()
    """Expressions to be worked out."""


def made_tasks(
    count: int, towns: Mapping[Split, Sequence[Town]], kinds: Sequence[Kind] = KINDS
) -> TaskSet:
    """`count` tasks for each split, as many of each of the `kinds`; splits share neither towns nor
    sums. The digest is of the documents, too."""
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    for split, found in tasks.items():
        seen: set[str] = set()
        number = 0
        while len(found) < count:
            kind = kinds[len(found) % len(kinds)]
            stream = random.Random(derive("multi tool", split, number))
            question = _MAKERS[kind](stream, towns[split])
            number += 1
            if question is None or question.text in seen:
                continue
            if not _belongs(question.text, kind, split):
                continue
            seen.add(question.text)
            found.append(_task(question, kind))
    scores = SOLVED | ({"random": RANDOM_SCORE} if (count, *kinds) == (COUNT, *KINDS) else {})
    return TaskSet.of(tasks, scores, content=lambda split: _content(split, towns))


def _belongs(text: str, kind: str, split: Split) -> bool:
    if kind in ("search", "both"):
        return True  # by its towns, of which each split has its own
    return split == ("heldout" if derive("split", text) % 2 else "train")


def none(stream: random.Random, towns: Sequence[Town]) -> Question | None:
    """Two facts, made up anew, and a question about one of them."""
    first, second = stream.sample(towns, 2)
    rivers = stream.sample(RIVERS, 2)
    asked, answer = stream.choice(((first, rivers[0]), (second, rivers[1])))
    text = (
        f"Say that {rivers[0]} is the river of {first.name} and {rivers[1]} that of {second.name}. "
        f"Which river would {asked.name} have?"
    )
    return Question(text, answer)


def search(stream: random.Random, towns: Sequence[Town]) -> Question | None:
    town = stream.choice(towns)
    text, answer = stream.choice(
        (
            (f"Which river does {town.name} have?", town.river),
            (f"How many people has {town.name}?", str(town.people)),
            (f"When was {town.name} founded?", str(town.year)),
        )
    )
    return Question(text, answer, (town.name,))


def calculator(stream: random.Random, towns: Sequence[Town]) -> Question | None:
    del towns
    a, b, c = stream.randint(12, 99), stream.randint(12, 99), stream.randint(3, 99)
    form = stream.choice(("{a} * {b}", "{a} * {b} + {c}", "{a} * ({b} + {c})", "{a} * {b} - {c}"))
    return _worked_out(f"What is {form.format(a=a, b=b, c=c)}?", (), form.format(a=a, b=b, c=c))


def both(stream: random.Random, towns: Sequence[Town]) -> Question | None:
    """A sum with one or two numbers that documents have."""
    first, second = stream.sample(towns, 2)
    high, low = sorted((first, second), key=lambda town: -town.people)
    n = stream.randint(12, 99)
    text, names, expression = stream.choice(
        (
            (
                f"How many people have {first.name} and {second.name} together?",
                (first.name, second.name),
                f"{first.people} + {second.people}",
            ),
            (
                f"How many more people has {high.name} than {low.name}?",
                (high.name, low.name),
                f"{high.people} - {low.people}",
            ),
            (
                f"If everyone in {first.name} has {n} books, how many books is that?",
                (first.name,),
                f"{first.people} * {n}",
            ),
            (
                f"How old was {first.name} in the year 20{n}?",
                (first.name,),
                f"20{n} - {first.year}",
            ),
        )
    )
    seen = re.findall(r"\d+", f"{first.document} {second.document}")
    return _worked_out(text, names, expression, seen)


def _worked_out(
    text: str, names: tuple[str, ...], expression: str, seen: Sequence[str] = ()
) -> Question | None:
    """A question whose answer differs from all numbers that were seen before."""
    answer = calculate(expression)
    if answer in (*seen, *re.findall(r"\d+", text)) or not 0 < int(answer) <= LARGEST:
        return None
    return Question(text, answer, names, (expression,))


_MAKERS: Mapping[Kind, Callable[[random.Random, Sequence[Town]], Question | None]] = {
    "none": none,
    "search": search,
    "calculator": calculator,
    "both": both,
}


def _task(question: Question, kind: str) -> Task:
    secret = {
        "answer": question.answer,
        "searches": list(question.searches),
        "sums": list(question.sums),
    }
    return Task(identity(question.text), question.text, secret, info={"needs": kind})


def _content(tasks: Tasks, towns: Mapping[Split, Sequence[Town]]) -> str:
    texts = []
    for split in SPLITS:
        texts += [json.dumps([split, one.prompt, dict(one.secret)]) for one in tasks[split]]
        texts += [town.document for town in towns[split]]
    return "".join(texts)
