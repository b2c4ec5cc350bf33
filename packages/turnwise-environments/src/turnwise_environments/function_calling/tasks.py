"""The tasks of the function-calling environment: a state, tools, and what a user asks in turn.

A draft becomes a task only if none of its answers stands in its words, and if each request changes
something that no other one does: an agent that leaves one out, or does nothing, leaves another
state.
"""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from turnwise.environments import tasksets
from turnwise.environments.tasksets import SOLVED, TaskSet, drafted
from turnwise.errors import ToolError
from turnwise.seeds import derive
from turnwise.types import Task, ToolCall
from turnwise_environments.common import identity, words_in
from turnwise_environments.function_calling.applications import (
    DAYS,
    FIRST_HOUR,
    LAST_HOUR,
    MODES,
    Desk,
    State,
    application_tools,
    owners,
    signature,
)
from turnwise_environments.rewards.toolrl import write_calls

TITLES = words_in(
    "lunch dentist choir yoga budget review interview workshop piano haircut football meeting "
    "party checkup rehearsal"
)
FOLDERS = ("letters", "bills", "plans", "drafts", "archive")
FILES = words_in("report notes invoice map list poem recipe contract agenda memo")
WORDS = words_in(
    "amber birch cobalt delta ember fjord garnet heron indigo jasper kelp lilac maple nectar "
    "onyx pearl quartz raven slate topaz"
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
    title = stream.choice([title for title in TITLES if title not in state["calendar"]])
    day, hour = _slot(stream)
    call = ToolCall("add_event", {"title": title, "day": day, "hour": hour})
    return Request(f"Put {title} on {day} at {hour}.", ((call,),))


def add_two_events(stream: random.Random, state: dict[str, State]) -> Request:
    free = [title for title in TITLES if title not in state["calendar"]]
    slots = [(title, *_slot(stream)) for title in stream.sample(free, 2)]
    calls = tuple(
        ToolCall("add_event", {"title": title, "day": day, "hour": hour})
        for title, day, hour in slots
    )
    wishes = " and ".join(f"{title} on {day} at {hour}" for title, day, hour in slots)
    return Request(f"Put {wishes}.", (calls,))


def move_event(stream: random.Random, state: dict[str, State]) -> Request:
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
    title = stream.choice(sorted(state["calendar"]))
    calls = (ToolCall("find_event", {"title": title}), ToolCall("cancel_event", {"title": title}))
    hour = str(state["calendar"][title][1])
    text = f"Cancel {title} and tell me at what hour it would have been."
    return Request(text, _one_by_one(*calls), hour)


def write_file(stream: random.Random, state: dict[str, State]) -> Request:
    folder = stream.choice(sorted(state["cabinet"]))
    file = stream.choice([file for file in FILES if file not in state["cabinet"][folder]])
    text = " ".join(stream.sample(WORDS, 2))
    call = ToolCall("write_file", {"folder": folder, "file": file, "text": text})
    return Request(f"Write {text} into a new file {file} in {folder}.", ((call,),))


def move_file(stream: random.Random, state: dict[str, State]) -> Request:
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
    folder, file, _ = _place(stream, state)
    arguments = {"folder": folder, "file": file}
    calls = (ToolCall("read_file", arguments), ToolCall("delete_file", arguments))
    text = f"Delete {file} in {folder} and tell me what it said."
    return Request(text, _one_by_one(*calls), state["cabinet"][folder][file])


def set_room(stream: random.Random, state: dict[str, State]) -> Request:
    room = stream.choice(sorted(state["heating"]))
    degrees, mode = _other_degrees(stream, state, room), _other_mode(stream, state, room)
    calls = (
        ToolCall("set_degrees", {"room": room, "degrees": degrees}),
        ToolCall("set_mode", {"room": room, "mode": mode}),
    )
    return Request(f"Set the {room} to {degrees} degrees and to {mode}.", (calls,))


def set_degrees(stream: random.Random, state: dict[str, State]) -> Request:
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
KINDS: tuple[Kind, ...] = get_args(Kind)
MAKERS: Mapping[str, Maker] = {
    maker.__name__: maker
    for maker in (
        *(add_event, add_two_events, move_event, move_event_to_another, cancel_event),
        *(write_file, move_file, copy_file, delete_file),
        *(set_room, set_degrees, warm_room, switch_room),
    )
}


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


COUNT, MAX_REQUESTS, TOOLS = 1000, 3, 5
RANDOM_SCORE = 0.001
"""Measured, one of the 1,000 standard held-out tasks: success of `random_actions`."""

DRAFTS = 50
"""Drafts for each task wanted, at most: some kinds of request are soon used up."""

Place = tuple[str, str]


@dataclass(frozen=True)
class Draft:
    """A task before it is split: requests, the state before and after, the tools that are there."""

    requests: tuple[Request, ...]
    before: dict[str, State]
    after: dict[str, State]
    offered: tuple[str, ...]

    @property
    def key(self) -> str:
        """The requests' words, whatever the state."""
        return " / ".join(request.text for request in self.requests)


def made_tasks(count: int, max_requests: int, tools: int, kinds: Sequence[Kind]) -> TaskSet:
    """`count` tasks for each split; what is asked in one split is not asked in the other."""

    def drafted_task(number: int) -> tasksets.Draft | None:
        stream = random.Random(derive("function calling", number))
        draft = _draft(stream, stream.randint(1, max_requests), tools, kinds)
        return None if draft is None else tasksets.Draft(draft.key, lambda: _task(draft))

    standard = (count, max_requests, tools, *kinds) == (COUNT, MAX_REQUESTS, TOOLS, *KINDS)
    scores = SOLVED | ({"random": RANDOM_SCORE} if standard else {})
    return TaskSet.made("function_calling", drafted(drafted_task, DRAFTS * count), count, scores)


def _draft(stream: random.Random, count: int, tools: int, kinds: Sequence[Kind]) -> Draft | None:
    before = draw_state(stream)
    state = copy.deepcopy(before)
    desk = Desk(state, list(owners()))
    requests: list[Request] = []
    touched: set[Place] = set()
    for _ in range(count):
        request = MAKERS[stream.choice(kinds)](stream, state)
        earlier = _places(state)
        try:
            for call in (call for turn in request.turns for call in turn):
                desk.call(call)
        except ToolError:  # there is a file of that name already
            return None
        later = _places(state)
        changed = {place for place in earlier | later if earlier.get(place) != later.get(place)}
        if not changed or changed & touched:
            return None
        touched |= changed
        requests.append(request)
    said = " ".join(request.text for request in requests)
    if any(request.answer and request.answer in said for request in requests):
        return None
    return Draft(tuple(requests), before, state, _offered(stream, requests, tools))


def _places(state: dict[str, State]) -> dict[Place, str]:
    folders = state["cabinet"].items()
    return {
        **{("calendar", title): str(slot) for title, slot in state["calendar"].items()},
        **{(folder, file): text for folder, files in folders for file, text in files.items()},
        **{("heating", room): str(found) for room, found in state["heating"].items()},
    }


def _offered(stream: random.Random, requests: Sequence[Request], tools: int) -> tuple[str, ...]:
    """The tools that are needed and some that are not."""
    needed = sorted({call.name for request in requests for turn in request.turns for call in turn})
    others = [name for name in owners() if name not in needed]
    spare = stream.sample(others, max(0, min(tools - len(needed), len(others))))
    return tuple(sorted([*needed, *spare]))


def _task(draft: Draft) -> Task:
    tools = "\n".join(signature(application_tools()[name]) for name in draft.offered)
    prompt = f"Tools:\n{tools}\n{draft.requests[0].text}"
    calls = sum(len(turn) for request in draft.requests for turn in request.turns)
    secret: dict[str, Any] = {
        "calls": [[write_calls(turn) for turn in request.turns] for request in draft.requests],
        "answers": [request.answer for request in draft.requests],
        "state": draft.after,
    }
    data: dict[str, Any] = {
        "state": draft.before,
        "tools": list(draft.offered),
        "requests": [request.text for request in draft.requests],
    }
    info = {"requests": len(draft.requests), "calls": calls}
    name = identity([draft.key, draft.before, draft.offered])
    return Task(name, prompt, secret, data, info)
