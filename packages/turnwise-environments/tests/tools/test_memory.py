"""Notes: limits, names, and that they are the whole state."""

import asyncio

import pytest

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, ToolError
from turnwise.types import Action, ToolCall
from turnwise_environments.tools.memory import FIRST_WORDS, LONGEST_NAME, Notes, NotesTools


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
    notes = Notes(most=2, longest=5)
    notes.write("a", "12345")
    notes.write("b", "")
    notes.write("a", "again")
    for name, text in (("c", ""), ("a", "123456"), (" ", ""), ("x" * (LONGEST_NAME + 1), "")):
        with pytest.raises(ToolError):
            notes.write(name, text)
    assert notes.notes == {"a": "again", "b": ""}
    with pytest.raises(ConfigError, match="notes"):
        Notes(most=0)


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
