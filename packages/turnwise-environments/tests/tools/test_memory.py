"""Notes: limits, names, and that they are the whole state."""

import asyncio

import pytest

from turnwise.environments.base import Environment
from turnwise.errors import ToolError
from turnwise.types import Action, ToolCall
from turnwise_environments.tools.memory import FIRST_WORDS, MOST_NOTES, Notes, NotesTools


def test_writing_reading_deleting() -> None:
    notes = Notes()
    assert notes.overview() == "(no notes)"
    assert notes.write(" the  plan ", "first\nthen") == "noted"
    assert notes.read("the plan") == "first\nthen"
    notes.write("the plan", "x" * 100)
    notes.write("a", "")
    assert notes.overview() == f"a: \nthe plan: {'x' * FIRST_WORDS}..."
    assert notes.read("a") == "(empty)"
    assert notes.delete("the plan ") == "deleted"
    with pytest.raises(ToolError, match="there is no note 'the plan'; notes: a"):
        notes.delete("the plan")


def test_limits() -> None:
    notes = Notes()
    for number in range(MOST_NOTES):
        notes.write(str(number), "x" * 2000)
    notes.write("0", "again")
    for name, text in (("c", ""), ("0", "x" * 2001), (" ", ""), ("x" * 61, "")):
        with pytest.raises(ToolError):
            notes.write(name, text)
    assert (len(notes.notes), notes.read("0")) == (MOST_NOTES, "again")


def test_a_snapshot_is_all_of_it() -> None:
    notes, other = Notes(), Notes()
    notes.write("b", "ü")
    notes.write("a", "1")
    other.restore(notes.snapshot())
    assert (other.notes, other.snapshot()) == (notes.notes, notes.snapshot())
    notes.write("a", "2")
    assert other.read("a") == "1"


class Mine(NotesTools, Environment):
    """Notes alone."""


def test_as_tools() -> None:
    mine = Mine()
    mine.notes = Notes()
    calls = (
        ToolCall("write_note", {"name": "a", "text": "b"}),
        ToolCall("list_notes", {}),
        ToolCall("read_note", {"name": "c"}),
        ToolCall("delete_note", {"name": "a"}),
    )
    step = asyncio.run(mine.step(Action("", calls=calls)))
    said = [result.content for result in step.results]
    assert said == ["noted", "a: b", "Error: there is no note 'c'; notes: a", "deleted"]
