"""Notes that an agent keeps for itself, outside of its context.

What is written stays when older turns are taken out of the context: the notes are the episode's,
not the conversation's. Whoever shortens a context puts `overview` into it, so that the agent knows
what there is to read. Not here: when and how a context is shortened.
"""

import json

from turnwise.errors import ToolError
from turnwise.tools.tool import tool

MOST_NOTES, LONGEST_NOTE, LONGEST_NAME = 50, 2000, 60
FIRST_WORDS = 60
"""Characters of each note that the overview shows."""


class Notes:
    """The notes of one episode, by name."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}

    def write(self, name: str, text: str) -> str:
        """Write a note, or over an old one. Raises ToolError for one that is too long or too
        many."""
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME:
            raise ToolError(f"a note needs a name, of {LONGEST_NAME} characters at most")
        if len(text) > LONGEST_NOTE:
            raise ToolError(f"a note has {LONGEST_NOTE} characters at most, not {len(text)}")
        if name not in self.notes and len(self.notes) == MOST_NOTES:
            raise ToolError(f"there are {MOST_NOTES} notes, which is the most: delete one")
        self.notes[name] = text
        return "noted"

    def read(self, name: str) -> str:
        """The text of a note. Raises ToolError, naming all notes, for an unknown name."""
        found = self.notes.get(" ".join(name.split()))
        if found is None:
            names = ", ".join(sorted(self.notes)) or "none"
            raise ToolError(f"there is no note {name!r}; notes: {names}")
        return found or "(empty)"

    def delete(self, name: str) -> str:
        """Delete a note. Raises ToolError for an unknown name."""
        self.read(name)
        del self.notes[" ".join(name.split())]
        return "deleted"

    def overview(self) -> str:
        """All notes by name with their first words, a line each."""
        lines = [f"{name}: {_begin(text)}" for name, text in sorted(self.notes.items())]
        return "\n".join(lines) or "(no notes)"

    def snapshot(self) -> bytes:
        """All notes, in the order in which they were begun."""
        return json.dumps(self.notes).encode()

    def restore(self, state: bytes) -> None:
        """Return to a state given by `snapshot`."""
        self.notes = json.loads(state)


class NotesTools:
    """The tools of notes, for an environment to derive from, which makes `notes` in `reset`."""

    notes: Notes

    @tool
    async def write_note(self, name: str, text: str) -> str:
        """Keep a note under a name. It stays when earlier turns are no longer shown."""
        return self.notes.write(name, text)

    @tool
    async def read_note(self, name: str) -> str:
        """Read a note."""
        return self.notes.read(name)

    @tool
    async def list_notes(self) -> str:
        """All notes, with their first words."""
        return self.notes.overview()

    @tool
    async def delete_note(self, name: str) -> str:
        """Delete a note."""
        return self.notes.delete(name)


def _begin(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= FIRST_WORDS else f"{words[:FIRST_WORDS]}..."
