"""The environment of the study react: cards that refer to each other by pairs of names.

A card has a number, which is the answer, or pairs in any order. They form chains, as "tree event"
and "event loop" do, and the card to read next is at the end of the chain that begins with the name
of this one. What a card has follows from the box and its name, so that a wrong one can be read too.
"""

import random
from collections.abc import Sequence

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import Draft, TaskSet, drafted
from turnwise.errors import ToolError
from turnwise.ranges import Count
from turnwise.rewards.answer import exact_match
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict

NAMES = (
    *("argument", "bytes", "call", "class", "command", "context", "data", "email", "error"),
    *("event", "file", "format", "function", "header", "item", "line", "list", "message"),
    *("method", "module", "number", "object", "option", "path", "process", "server", "socket"),
    *("string", "test", "text", "time", "trace", "tuple", "type", "value", "widget"),
)
CHAINS, LINKS = 3, 3
"""Chains of a card, and pairs of each."""
ANSWERS = 0.35
"""Share of the cards that have a number."""
READS = ("two", "three", "four")
"""Cards that a task takes; each count is as frequent."""


class Cards(Environment):
    """See the module."""

    facts = EnvironmentSpec("cards", "1")

    def __init__(self, readable: bool = True, count: Count = 4000) -> None:
        """There are `count` tasks in each split, each with a box of its own; without `readable`
        there is no tool to read the cards with."""
        self.readable = readable
        self.task_set = TaskSet.made("cards", drafted(_draft), count)

    def tools(self) -> list[Tool]:
        """The reading of cards, where the agent has it."""
        return super().tools() if self.readable else []

    async def reset(self, task: Task, seed: int) -> Observation:
        """The name of the first card; the box is out of sight."""
        del seed
        self._box: int = task.data["box"]
        return Observation(task.prompt, Source.USER)

    @tool
    def read(self, card: str) -> str:
        """Read the card of a name."""
        if card.strip() not in NAMES:
            raise ToolError(f"there is no card {card!r}")
        return _content(self._box, card.strip())

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success is the number at the end of the way."""
        success = exact_match(trajectory.answer, [trajectory.task.secret["answer"]])
        return Verdict(float(success), success, detail=f"answered {trajectory.answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """Read card after card; a thought follows the chain through the card before. Without the
        tool the same thoughts come at once."""
        way, answer = task.secret["way"], task.secret["answer"]
        thoughts = [" ".join(_chain(task.data["box"], card)) for card in way[:-1]]
        if not self.readable:
            return [Action("", ", ".join(thoughts), answer=answer)]
        reads = [
            Action("", thought, (ToolCall("read", {"card": card}),))
            for thought, card in zip([way[0], *thoughts], way, strict=True)
        ]
        return [*reads, Action("", answer, answer=answer)]


def _draft(number: int) -> Draft | None:
    """A task of as many cards as its number's turn is; None where its box has another way."""
    box, reads = derive("cards", number), 2 + number % len(READS)
    way = [NAMES[box % len(NAMES)]]
    while len(way) <= reads and (chain := _chain(box, way[-1])):
        way.append(chain[-1])
    if len(way) != reads:
        return None
    secret = {"way": way, "answer": _content(box, way[-1])}
    info = {"cards": READS[reads - 2]}
    task = Task(f"cards-{number}", way[0], secret, {"box": box}, info)
    return Draft(str(box), lambda: task)


def _content(box: int, card: str) -> str:
    chain = _chain(box, card)
    stream = random.Random(derive("card", box, card))
    if not chain:
        return str(stream.randint(10, 99))
    others = stream.sample(sorted({*NAMES} - {*chain}), (CHAINS - 1) * (LINKS + 1))
    names = [*chain, *others]
    pairs = [
        f"{names[place]} {names[place + 1]}"
        for place in range(len(names) - 1)
        if (place + 1) % (LINKS + 1)
    ]
    return ", ".join(stream.sample(pairs, len(pairs)))


def _chain(box: int, card: str) -> list[str]:
    """The names from a card to the next one; none where it has a number."""
    stream = random.Random(derive("chain", box, card))
    if stream.random() < ANSWERS:
        return []
    return [card, *stream.sample([name for name in NAMES if name != card], LINKS)]
