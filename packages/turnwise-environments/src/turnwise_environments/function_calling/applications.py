"""Three small applications with a state: a calendar, a file cabinet, a heating.

Each is a class over plain data whose @tool methods are its actions; `Desk` holds all three, which
is the whole world of a task.
"""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from pydantic import StrictInt

from turnwise.errors import ToolError
from turnwise.tools.tool import Tool, tool, tools_of
from turnwise.types import ToolCall

Day = Literal["mon", "tue", "wed", "thu", "fri"]
Mode = Literal["off", "eco", "heat"]
DAYS: tuple[str, ...] = get_args(Day)
MODES: tuple[str, ...] = get_args(Mode)
FIRST_HOUR, LAST_HOUR = 8, 19
COLDEST, WARMEST = 5, 30

State = dict[str, Any]


class Calendar:
    """Events: title -> [day, hour]."""

    def __init__(self, events: State) -> None:
        self._events = events

    @tool
    def find_event(self, title: str) -> str:
        """Day and hour of an event."""
        day, hour = self._known(title)
        return f"{day} {hour}"

    @tool
    def list_day(self, day: Day) -> str:
        """Titles of a day's events."""
        titles = sorted(title for title, (on, _) in self._events.items() if on == day)
        return ", ".join(titles) or "nothing"

    @tool
    def add_event(self, title: str, day: Day, hour: StrictInt) -> str:
        """Put an event into the calendar."""
        if title in self._events:
            raise ToolError(f"there is an event {title!r} already")
        self._events[title] = [day, self._checked(hour)]
        return "added"

    @tool
    def move_event(self, title: str, day: Day, hour: StrictInt) -> str:
        """Give an event another day and hour."""
        self._known(title)
        self._events[title] = [day, self._checked(hour)]
        return "moved"

    @tool
    def cancel_event(self, title: str) -> str:
        """Take an event out of the calendar."""
        self._known(title)
        del self._events[title]
        return "cancelled"

    def _known(self, title: str) -> tuple[str, int]:
        if title not in self._events:
            raise ToolError(f"there is no event {title!r}")
        day, hour = self._events[title]
        return day, hour

    def _checked(self, hour: int) -> int:
        if not FIRST_HOUR <= hour <= LAST_HOUR:
            raise ToolError(f"hour is {FIRST_HOUR} to {LAST_HOUR}, not {hour}")
        return hour


class Cabinet:
    """Folders of files: folder -> file -> text."""

    def __init__(self, folders: State) -> None:
        self._folders = folders

    @tool
    def list_files(self, folder: str) -> str:
        """Names of a folder's files."""
        return ", ".join(sorted(self._folder(folder))) or "nothing"

    @tool
    def read_file(self, folder: str, file: str) -> str:
        """Text of a file."""
        return self._text(folder, file)

    @tool
    def write_file(self, folder: str, file: str, text: str) -> str:
        """Write a new file, or over an old one."""
        if not file.strip():
            raise ToolError("the file needs a name")
        self._folder(folder)[file] = text
        return "written"

    @tool
    def move_file(self, folder: str, file: str, to: str) -> str:
        """Move a file to another folder."""
        text, target = self._text(folder, file), self._folder(to)
        if file in target:
            raise ToolError(f"there is a file {file!r} in {to!r} already")
        target[file] = text
        del self._folders[folder][file]
        return "moved"

    @tool
    def delete_file(self, folder: str, file: str) -> str:
        """Delete a file."""
        self._text(folder, file)
        del self._folders[folder][file]
        return "deleted"

    def _folder(self, folder: str) -> dict[str, str]:
        if folder not in self._folders:
            raise ToolError(
                f"there is no folder {folder!r}; folders: {', '.join(sorted(self._folders))}"
            )
        found: dict[str, str] = self._folders[folder]
        return found

    def _text(self, folder: str, file: str) -> str:
        if file not in self._folder(folder):
            raise ToolError(f"there is no file {file!r} in {folder!r}")
        return str(self._folders[folder][file])


class Heating:
    """Rooms: room -> [degrees, mode]."""

    def __init__(self, rooms: State) -> None:
        self._rooms = rooms

    @tool
    def read_room(self, room: str) -> str:
        """Degrees and mode of a room."""
        degrees, mode = self._known(room)
        return f"{degrees} degrees, {mode}"

    @tool
    def set_degrees(self, room: str, degrees: StrictInt) -> str:
        """Set how warm a room is to be."""
        if not COLDEST <= degrees <= WARMEST:
            raise ToolError(f"degrees are {COLDEST} to {WARMEST}, not {degrees}")
        self._known(room)[0] = degrees
        return "set"

    @tool
    def set_mode(self, room: str, mode: Mode) -> str:
        """Set a room's mode."""
        self._known(room)[1] = mode
        return "set"

    def _known(self, room: str) -> list[Any]:
        if room not in self._rooms:
            raise ToolError(f"there is no room {room!r}; rooms: {', '.join(sorted(self._rooms))}")
        found: list[Any] = self._rooms[room]
        return found


class Desk:
    """The three applications over one state. Example: Desk({"calendar": {}, ...}, offered)."""

    KINDS: ClassVar[dict[str, type]] = {
        "calendar": Calendar,
        "cabinet": Cabinet,
        "heating": Heating,
    }

    def __init__(self, state: Mapping[str, State], offered: list[str]) -> None:
        """`state` is used as it is, and changed; `offered` names the tools that may be called."""
        self._applications = {name: kind(state[name]) for name, kind in self.KINDS.items()}
        self._offered = offered

    def call(self, call: ToolCall) -> str:
        """Run a call as the agent makes it. Raises ToolError for what the agent did wrong."""
        if call.name not in self._offered:
            names = ", ".join(self._offered)
            raise ToolError(f"there is no tool {call.name!r}; tools: {names}")
        arguments = application_tools()[call.name].check(call.arguments)
        method = getattr(self._applications[owners()[call.name]], call.name)
        return str(method(**arguments))


@functools.cache
def owners() -> dict[str, str]:
    """Tool -> the application that it belongs to."""
    return {tool: name for name, kind in Desk.KINDS.items() for tool in tools_of(kind({}))}


@functools.cache
def application_tools() -> dict[str, Tool]:
    return {
        name: found for kind in Desk.KINDS.values() for name, found in tools_of(kind({})).items()
    }


def signature(tool: Tool) -> str:
    """A tool's schema on one line: `set_mode(room: string, mode: off|eco|heat): Set a …`."""
    properties: Mapping[str, Mapping[str, Any]] = tool.schema["parameters"].get("properties", {})
    arguments = ", ".join(
        f"{name}: {'|'.join(entry['enum']) if 'enum' in entry else entry['type']}"
        for name, entry in properties.items()
    )
    return f"{tool.name}({arguments}): {tool.description}"
