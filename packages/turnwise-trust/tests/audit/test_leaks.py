"""Secrets that are shown, and lists and later observations that only look like it."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from asking import Asking, failed, found
from turnwise.errors import ToolError
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Step, Task, ToolCall
from turnwise_trust.audit.leaks import leaks

PEOPLE = ("Ana", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gus", "Hana")


def _drawn(name: str) -> tuple[str, Sequence[str]]:
    """The one who is at the door, and all three who are there."""
    stream = random.Random(name)
    here = stream.sample(PEOPLE, 3)
    return stream.choice(here), here


class Who(Asking):
    """Asks who of three is at a door; a tool knows it."""

    separator = ", "
    said = "there is no such door; here are {}"

    def tasks(self, split: str) -> Sequence[Task]:
        names = [f"{split}-{place}" for place in range(8)]
        return [Task(name, "Who is at the door?", {"sum": _drawn(name)[0]}) for name in names]

    async def reset(self, task: Task, seed: int) -> Observation:
        self.wanted, self.here = _drawn(task.id)
        return await super().reset(task, seed)

    @tool
    def look(self, door: str) -> str:
        """Look who is at a door."""
        raise ToolError(self.said.format(self.separator.join(self.here), wanted=self.wanted))

    def oracle(self, task: Task) -> Sequence[Action]:
        look = ToolCall("look", {"door": "front"})
        return [Action("", calls=(look,)), Action("", answer=task.secret["sum"])]


class InLines(Who):
    separator = "\n- "


class WithPlaces(Who):
    separator = " (inside), "


class Told(Who):
    said = "{wanted} is asked for; here are {}"


class Asked(Who):
    """Shows who is there when an answer is given; its errors show nothing."""

    said = "there is no such door"

    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        self.answers = getattr(self, "answers", 0) + bool(step.done)
        text = f"Here are {' and nobody else but '.join(self.here)}. Again!"
        return Step(Observation(text)) if self.answers == 1 else step


@pytest.mark.parametrize("kind", [Who, InLines, WithPlaces, Asked])
def test_a_list_and_what_comes_after_the_errors_tell_nothing(kind: type[Who]) -> None:
    assert "secrets in tool errors" not in failed(leaks, kind())


def test_what_is_told_beside_a_list_is_found() -> None:
    told = failed(leaks, Told())["secrets in tool errors"]
    assert (told.figure, "16 of 16" in told.note) == (1.0, True)


class InSchemas(Who):
    """Names have other letters; each task has data with keys that JSON lacks."""

    said = "there is no such door"

    def tasks(self, split: str) -> Sequence[Task]:
        tasks = super().tasks(split)
        spelled = [replace(one, secret={"sum": f"{one.secret['sum']}é"}) for one in tasks]
        return [replace(one, data={"doors": {(0, 1): "front"}}) for one in spelled]

    def tools(self) -> list[Tool]:
        wanted = f"The door of {getattr(self, 'wanted', '')}é"
        return [replace(one, schema={**one.schema, "title": wanted}) for one in super().tools()]


def test_a_secret_with_letters_beyond_ascii_is_found_in_schemas() -> None:
    assert "secrets in tool schemas" in failed(leaks, InSchemas())


class Returned(Who):
    @tool
    def look(self, door: str) -> str:
        """Look who is at a door."""
        return f"It is {self.wanted}."


@pytest.mark.parametrize(("kind", "least", "most"), [(Returned, 0.5, 1.0), (Who, 0.0, 0.0)])
def test_what_random_calls_return_is_measured(kind: type[Who], least: float, most: float) -> None:
    row = found(leaks, kind())["secrets in what random calls return"]
    assert row.passed is None
    assert least <= (row.figure or 0) <= most
