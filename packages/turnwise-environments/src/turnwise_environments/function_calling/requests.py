"""Requests of a user to the applications, made by program: words, calls that fulfil them, an
answer.

A maker looks at the state as it is when the user speaks, and draws a request that can be done. Some
need a result first: their calls come in several turns. Not here: tasks (`tasks.py`).
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from turnwise.types import ToolCall
from turnwise_environments.function_calling.applications import (
    DAYS,
    FIRST_HOUR,
    LAST_HOUR,
    MODES,
    State,
)

TITLES = (
    *("lunch", "dentist", "choir", "yoga", "budget", "review", "interview", "workshop", "piano"),
    *("haircut", "football", "meeting", "party", "checkup", "rehearsal"),
)
FOLDERS = ("letters", "bills", "plans", "drafts", "archive")
FILES = (
    "report",
    "notes",
    "invoice",
    "map",
    "list",
    "poem",
    "recipe",
    "contract",
    "agenda",
    "memo",
)
WORDS = (
    *("amber", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "heron", "indigo", "jasper"),
    *("kelp", "lilac", "maple", "nectar", "onyx", "pearl", "quartz", "raven", "slate", "topaz"),
)
ROOMS = ("kitchen", "hall", "office", "attic", "cellar", "nursery")


@dataclass(frozen=True)
class Request:
    """Example: Request("Cancel choir.", ((ToolCall("cancel_event", {"title": "choir"}),),))."""

    text: str
    turns: tuple[tuple[ToolCall, ...], ...]
    """The calls that do it: those of one turn do not need each other's results."""
    answer: str | None = None
    """The fact that the answer must contain; None where any answer will do."""


def draw_state(stream: random.Random) -> dict[str, State]:
    """Some events, files and rooms."""
    files = stream.sample(FILES, 6)
    folders: State = {folder: {} for folder in sorted(stream.sample(FOLDERS, 3))}
    for file in files:
        folders[stream.choice(sorted(folders))][file] = " ".join(stream.sample(WORDS, 2))
    return {
        "calendar": {title: _slot(stream) for title in stream.sample(TITLES, 5)},
        "cabinet": folders,
        "heating": {
            room: [stream.randint(14, 22), stream.choice(MODES)] for room in stream.sample(ROOMS, 3)
        },
    }


def add_event(stream: random.Random, state: dict[str, State]) -> Request:
    """Arguments that are all said."""
    title = stream.choice([title for title in TITLES if title not in state["calendar"]])
    day, hour = _slot(stream)
    call = ToolCall("add_event", {"title": title, "day": day, "hour": hour})
    return Request(f"Put {title} on {day} at {hour}.", ((call,),))


def add_two_events(stream: random.Random, state: dict[str, State]) -> Request:
    """Two calls in one turn."""
    free = [title for title in TITLES if title not in state["calendar"]]
    slots = [(title, *_slot(stream)) for title in stream.sample(free, 2)]
    calls = tuple(
        ToolCall("add_event", {"title": title, "day": day, "hour": hour})
        for title, day, hour in slots
    )
    wishes = " and ".join(f"{title} on {day} at {hour}" for title, day, hour in slots)
    return Request(f"Put {wishes}.", (calls,))


def move_event(stream: random.Random, state: dict[str, State]) -> Request:
    """Arguments that are all said."""
    title = stream.choice(sorted(state["calendar"]))
    day, hour = _slot(stream)
    call = ToolCall("move_event", {"title": title, "day": day, "hour": hour})
    return Request(f"Move {title} to {day} at {hour}.", ((call,),))


def move_event_to_another(stream: random.Random, state: dict[str, State]) -> Request:
    """An argument that must be found first."""
    title, other = stream.sample(sorted(state["calendar"]), 2)
    hour = stream.randint(FIRST_HOUR, LAST_HOUR)
    day = state["calendar"][other][0]
    calls = (
        ToolCall("find_event", {"title": other}),
        ToolCall("move_event", {"title": title, "day": day, "hour": hour}),
    )
    return Request(f"Move {title} to the day of {other}, at {hour}.", _one_by_one(*calls))


def cancel_event(stream: random.Random, state: dict[str, State]) -> Request:
    """A change and an answer."""
    title = stream.choice(sorted(state["calendar"]))
    calls = (ToolCall("find_event", {"title": title}), ToolCall("cancel_event", {"title": title}))
    hour = str(state["calendar"][title][1])
    text = f"Cancel {title} and tell me at what hour it would have been."
    return Request(text, _one_by_one(*calls), hour)


def write_file(stream: random.Random, state: dict[str, State]) -> Request:
    """Arguments that are all said."""
    folder = stream.choice(sorted(state["cabinet"]))
    file = stream.choice([file for file in FILES if file not in state["cabinet"][folder]])
    text = " ".join(stream.sample(WORDS, 2))
    call = ToolCall("write_file", {"folder": folder, "file": file, "text": text})
    return Request(f"Write {text} into a new file {file} in {folder}.", ((call,),))


def move_file(stream: random.Random, state: dict[str, State]) -> Request:
    """Arguments that are all said."""
    folder, file, to = _place(stream, state)
    call = ToolCall("move_file", {"folder": folder, "file": file, "to": to})
    return Request(f"Move {file} from {folder} to {to}.", ((call,),))


def copy_file(stream: random.Random, state: dict[str, State]) -> Request:
    """An argument that must be read first."""
    folder, file, to = _place(stream, state)
    text = state["cabinet"][folder][file]
    calls = (
        ToolCall("read_file", {"folder": folder, "file": file}),
        ToolCall("write_file", {"folder": to, "file": file, "text": text}),
    )
    return Request(f"Copy {file} from {folder} to {to}.", _one_by_one(*calls))


def delete_file(stream: random.Random, state: dict[str, State]) -> Request:
    """A change and an answer."""
    folder, file, _ = _place(stream, state)
    arguments = {"folder": folder, "file": file}
    calls = (ToolCall("read_file", arguments), ToolCall("delete_file", arguments))
    text = f"Delete {file} in {folder} and tell me what it said."
    return Request(text, _one_by_one(*calls), state["cabinet"][folder][file])


def set_room(stream: random.Random, state: dict[str, State]) -> Request:
    """Two calls in one turn."""
    room = stream.choice(sorted(state["heating"]))
    degrees, mode = _other_degrees(stream, state, room), _other_mode(stream, state, room)
    calls = (
        ToolCall("set_degrees", {"room": room, "degrees": degrees}),
        ToolCall("set_mode", {"room": room, "mode": mode}),
    )
    return Request(f"Set the {room} to {degrees} degrees and to {mode}.", (calls,))


def set_degrees(stream: random.Random, state: dict[str, State]) -> Request:
    """Arguments that are all said."""
    room = stream.choice(sorted(state["heating"]))
    degrees = _other_degrees(stream, state, room)
    call = ToolCall("set_degrees", {"room": room, "degrees": degrees})
    return Request(f"Set the {room} to {degrees} degrees.", ((call,),))


def warm_room(stream: random.Random, state: dict[str, State]) -> Request:
    """An argument that must be worked out from a result."""
    room, more = stream.choice(sorted(state["heating"])), stream.randint(2, 5)
    calls = (
        ToolCall("read_room", {"room": room}),
        ToolCall("set_degrees", {"room": room, "degrees": state["heating"][room][0] + more}),
    )
    return Request(f"Make the {room} {more} degrees warmer.", _one_by_one(*calls))


def switch_room(stream: random.Random, state: dict[str, State]) -> Request:
    """A change and an answer."""
    room = stream.choice(sorted(state["heating"]))
    mode = _other_mode(stream, state, room)
    calls = (
        ToolCall("read_room", {"room": room}),
        ToolCall("set_mode", {"room": room, "mode": mode}),
    )
    text = f"Switch the {room} to {mode} and tell me how many degrees it has."
    return Request(text, _one_by_one(*calls), str(state["heating"][room][0]))


Maker = Callable[[random.Random, dict[str, State]], Request]
Kind = Literal[
    "add_event",
    "add_two_events",
    "move_event",
    "move_event_to_another",
    "cancel_event",
    "write_file",
    "move_file",
    "copy_file",
    "delete_file",
    "set_room",
    "set_degrees",
    "warm_room",
    "switch_room",
]
MAKERS: Mapping[Kind, Maker] = {
    "add_event": add_event,
    "add_two_events": add_two_events,
    "move_event": move_event,
    "move_event_to_another": move_event_to_another,
    "cancel_event": cancel_event,
    "write_file": write_file,
    "move_file": move_file,
    "copy_file": copy_file,
    "delete_file": delete_file,
    "set_room": set_room,
    "set_degrees": set_degrees,
    "warm_room": warm_room,
    "switch_room": switch_room,
}
KINDS: tuple[Kind, ...] = get_args(Kind)


def _one_by_one(*calls: ToolCall) -> tuple[tuple[ToolCall, ...], ...]:
    return tuple((call,) for call in calls)


def _slot(stream: random.Random) -> list[Any]:
    return [stream.choice(DAYS), stream.randint(FIRST_HOUR, LAST_HOUR)]


def _place(stream: random.Random, state: dict[str, State]) -> tuple[str, str, str]:
    """A file, where it is, and a folder without one of that name."""
    cabinet = state["cabinet"]
    places = [(folder, file) for folder in sorted(cabinet) for file in sorted(cabinet[folder])]
    folder, file = stream.choice(places)
    return folder, file, stream.choice([to for to in sorted(cabinet) if to != folder])


def _other_degrees(stream: random.Random, state: dict[str, State], room: str) -> int:
    return stream.choice([warm for warm in range(12, 26) if warm != state["heating"][room][0]])


def _other_mode(stream: random.Random, state: dict[str, State], room: str) -> str:
    return stream.choice([mode for mode in MODES if mode != state["heating"][room][1]])
