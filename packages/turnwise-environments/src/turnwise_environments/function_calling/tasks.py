"""The tasks of the function-calling environment: a state, tools, and what a user asks in turn.

A draft becomes a task only if none of its answers stands in its words, and if each request changes
something that no other one does: an agent that leaves one out, or does nothing, leaves another
state. Not here: what is asked (`requests.py`), how an episode goes (`environment.py`).
"""

import copy
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.environments import tasksets
from turnwise.environments.tasksets import SOLVED, TaskSet, drafted
from turnwise.errors import ToolError
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.function_calling.applications import (
    Desk,
    State,
    application_tools,
    owners,
    signature,
)
from turnwise_environments.function_calling.requests import KINDS, MAKERS, Kind, Request, draw_state
from turnwise_environments.rewards.tool_calls import write_calls

COUNT, MAX_REQUESTS, TOOLS = 1000, 3, 5
RANDOM_SCORE = 0.001
"""Measured, one of the 1,000 standard held-out tasks: success of an agent that makes as many calls
as are needed, of random offered tools with random words of the requests and random numbers, and
answers with such words."""

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
        """The requests' words, whatever the state: equal keys are the same question."""
        return " / ".join(request.text for request in self.requests)


def made_tasks(count: int, max_requests: int, tools: int, kinds: Sequence[Kind]) -> TaskSet:
    """`count` tasks for each split, each of 1 to `max_requests` requests of these `kinds` and with
    `tools` tools (or as many as it needs); whatever is asked in one split is not asked in the
    other."""

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
    desk = Desk(state, [])
    requests: list[Request] = []
    touched: set[Place] = set()
    for _ in range(count):
        request = MAKERS[stream.choice(kinds)](stream, state)
        earlier = _places(state)
        try:
            for call in (call for turn in request.turns for call in turn):
                desk.apply(call)
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
    """Each event's, file's and room's value, as text."""
    folders = state["cabinet"].items()
    return {
        **{("calendar", title): str(slot) for title, slot in state["calendar"].items()},
        **{(folder, file): text for folder, files in folders for file, text in files.items()},
        **{("heating", room): str(found) for room, found in state["heating"].items()},
    }


def _offered(stream: random.Random, requests: Sequence[Request], tools: int) -> tuple[str, ...]:
    """The tools that are needed and some that are not, in an order that says nothing."""
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
    return Task(_id(draft), prompt, secret, data, info)


def _id(draft: Draft) -> str:
    content = json.dumps([draft.key, draft.before, draft.offered], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
